"""The running jobs with a real broker: exact windows for any order of events, restarts, and a broker that ends."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from structlog.testing import capture_logs

from spark.apps import jobs
from spark.apps.driver_thread import DriverThread
from spark.apps.jobs import JOBS, start_query
from spark.apps.settings import SparkSettings
from spark.apps.supervision import keep_running
from tests.spark import reference, samples
from tests.spark.comparison import assert_close, assert_totals, assert_tweets_equal
from tests.spark.reference import Row
from tests.spark.topics import is_tweet, stored, totals, windows
from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Event, SyncClient

WINDOW_MS = 5_000
WITHIN_S = 180

pytestmark = [pytest.mark.stack, pytest.mark.timeout(420)]

Start = Callable[..., StreamingQuery]


@pytest.fixture
def start(spark_session: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Iterator[Start]:
    """Start jobs on the test's broker. At the end, stop those that still run."""
    with ExitStack() as stack:

        def run(job: str, *flags: str) -> StreamingQuery:
            given = [job, "--broker", broker.address, "--checkpoint", str(tmp_path / "checkpoint")]
            timing = ["--window", f"{WINDOW_MS}ms", "--idle", "1s", "--trigger", "0s"]
            settings = SparkSettings(_cli_parse_args=[*given, *timing, *flags])
            query = start_query(spark_session, JOBS[job], settings)
            stack.callback(query.stop)
            return query

        yield run


def publish(broker: BrokerProcess, changes: list[Any], *, topic: str = "tweets", first: int = 0) -> None:
    events = [
        Event(id=str(first + n), msg=change, producer="cdc", sequence=first + n + 1) for n, change in enumerate(changes)
    ]
    with SyncClient(broker.address) as client:
        client.publish_many(topic, events)


def wait_until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    def holds() -> bool:
        assert query.isActive, query.exception()
        return condition()

    until(holds, WITHIN_S, lambda: query.lastProgress, pause_s=0.1)


def counted(broker: BrokerProcess) -> int:
    return sum(window["tweets"] + window["late"] for window in windows(broker, "tweets_stats").values())


def state_stores(query: StreamingQuery) -> int:
    progress = query.lastProgress
    assert progress
    return progress.stateOperators[0].numShufflePartitions


def with_watermarks(rows: list[Row], queries: list[StreamingQuery]) -> list[Row]:
    """Add to each row the watermark of the batch that read it."""
    watermarks: dict[int, int] = {}
    for progress in (entry for query in queries for entry in query.recentProgress):
        source = progress["sources"][0]
        began, ended = json.loads(source["startOffset"] or "null"), json.loads(source["endOffset"])
        first = began["topics"]["tweets"]["next"] if began else 0
        for offset in range(first, ended["topics"]["tweets"]["next"]):
            watermarks[offset] = began["watermark"] if began else 0
    return [{**row, "watermark": watermarks[row["offset"]]} for row in rows]


def test_a_file_in_random_order_with_repeats_late_rows_and_odd_messages_gives_the_reference_windows(
    broker: BrokerProcess, start: Start
) -> None:
    changes = [*samples.changes(1_200), *samples.ODD]
    random.Random(3).shuffle(changes)
    publish(broker, changes)
    publish(broker, changes)
    rows = stored(broker, "tweets")
    assert len(rows) == len(changes)
    query = start("tweets-stats", "--rows-max", "300", "--watermark", "2s")
    wait_until(lambda: counted(broker) == sum(map(is_tweet, rows)), query)
    expected = reference.tweets_stats(with_watermarks(rows, [query]), WINDOW_MS)
    assert sum(window["late"] for window in expected.values()) > 100, "the test has no late rows"
    assert_tweets_equal(windows(broker, "tweets_stats"), expected)
    assert_totals(totals(broker, "tweets_stats"), expected)


def test_windows_of_users_end_by_the_clock_without_later_tweets(broker: BrokerProcess, start: Start) -> None:
    changes = samples.changes(400)
    publish(broker, changes)
    newcomers = [{"op": "insert", "document": {"screen_name": "x"}, "at": changes[n]["at"]} for n in (0, 5, 399)]
    publish(broker, newcomers, topic="users")
    rows = [*stored(broker, "tweets"), *stored(broker, "users")]
    expected = reference.users_stats(rows, WINDOW_MS)
    query = start("users-stats")
    wait_until(lambda: len(windows(broker, "users_stats")) == len(expected), query)
    assert_close(windows(broker, "users_stats"), {reference.iso(start): window for start, window in expected.items()})
    assert_totals(totals(broker, "users_stats"), expected, reference.users_totals)
    assert state_stores(query) == 1


def test_a_restart_continues_where_it_was_and_the_broker_may_go_away_meanwhile(
    broker: BrokerProcess, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = samples.changes(600)
    publish(broker, changes[:200])
    with monkeypatch.context() as other_machine:
        other_machine.setattr(jobs, "_CORES_PER_STORE", 1)
        first = start("tweets-stats", "--rows-max", "100")
    wait_until(lambda: len(windows(broker, "tweets_stats")) > 0, first)
    first.stop()
    publish(broker, changes[200:400], first=200)
    second = start("tweets-stats", "--rows-max", "100")
    broker.kill()
    broker.start()
    publish(broker, changes[400:], first=400)
    rows = stored(broker, "tweets")
    wait_until(lambda: counted(broker) == sum(map(is_tweet, rows)), second)
    expected = reference.tweets_stats(with_watermarks(rows, [first, second]), WINDOW_MS)
    assert_tweets_equal(windows(broker, "tweets_stats"), expected)
    assert_totals(totals(broker, "tweets_stats"), expected)
    assert state_stores(second) == state_stores(first) == 2


@pytest.mark.anyio
async def test_a_stop_during_a_backlog_waits_for_one_batch_only(broker: BrokerProcess, start: Start) -> None:
    publish(broker, samples.changes(6_000))
    query = start("tweets-stats", "--rows-max", "100")

    def newest() -> int:
        progress = query.lastProgress
        return -1 if progress is None else progress.batchId

    stop, started = anyio.Event(), anyio.Event()
    with DriverThread() as thread, capture_logs() as logs, anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(keep_running, "one", thread, lambda: query, stop, drain_s=30, started=started))
            while newest() < 3:
                await anyio.sleep(0.1)
            at_stop = newest()
            stop.set()
    assert newest() - at_stop <= 2
    assert not [log for log in logs if log["log_level"] != "info"]


def test_spark_reads_a_topic_as_a_table_and_writes_one(broker: BrokerProcess, spark_session: SparkSession) -> None:
    table = spark_session.createDataFrame([("a", '{"n":1}'), ("b", '{"n":2}')], "id string, msg string")
    written = table.write.format("tweetwire").mode("append").option("broker", broker.address).option("topic", "numbers")
    for _ in range(2):
        written.option("producer", "once").save()
    read = spark_session.read.format("tweetwire").option("broker", broker.address).option("topic", "numbers").load()
    assert [(row["offset"], row["id"], row["msg"]) for row in read.orderBy("offset").collect()] == [
        (0, "a", '{"n":1}'),
        (1, "b", '{"n":2}'),
    ]
    assert [row["id"] for row in read.where("offset >= 1").collect()] == ["b"]
