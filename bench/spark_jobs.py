"""S1, S2: measure Spark's statistics of a backlog and live, and compare them with Spark's own source and an empty query."""

import json
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from bench.broker_process import broker_process
from bench.programs import folder, program
from bench.settings import BenchSettings
from spark.apps.jobs import JOBS, start_query
from spark.apps.session import build_session
from spark.apps.settings import SparkSettings
from spark.statistics.changes import counted_changes
from spark.statistics.stats_topic import window_events
from tweetwire import Event, StoredEvent, SyncClient
from tweetwire.statistics import TweetsWindow

__all__ = ["StatisticsRate", "WindowLatency", "backlog_statistics", "window_latency"]

MASTER: Final = "local[2]"
BATCHES: Final = 10
WARM_BATCHES: Final = 6
LOOK_S: Final = 0.5
"""The interval between two reads of a query's progress.

A read takes milliseconds, because the progress arrives as text.
"""
BACKLOG_RATE: Final = 10_000
LIVE_RATE: Final = 500
LIVE_BYTES: Final = 700
LIVE_S_MAX: Final = 240
WARM_WINDOWS: Final = 3
WINDOWS: Final = 9
WINDOW_S: Final = 5
SMALLEST_BYTES: Final = 240
_JOB: Final = JOBS["tweets-stats"]


class StatisticsRate(NamedTuple):
    """Events a second through `tweets_stats`: from a topic, and from Spark's rate source."""

    topic: float
    rate_source: float


class WindowLatency(NamedTuple):
    """The median seconds from a window's end to its event in the topic, and the median seconds of an empty query's trigger."""

    window: float
    empty_trigger: float


def backlog_statistics(settings: BenchSettings) -> StatisticsRate:
    """S1: measure a backlog's statistics in its last micro-batches, because Java compiles the query in the first ones.

    The benchmark sets the size of all micro-batches to the program's default, since a job begins with smaller ones.
    """
    changes = _changes(1000, settings.size)
    rows = max(100, settings.events)
    count = BATCHES * rows
    with broker_process("--topic", "tweets") as (port, _), folder() as home, _session(home) as session:
        with SyncClient(f"127.0.0.1:{port}") as client:
            client.publish_many("tweets", _backlog(changes, count))
        words = ["tweets-stats", f"--broker=127.0.0.1:{port}", f"--checkpoint={home / 'checkpoint'}", "--trigger=0s"]
        job = SparkSettings(_cli_parse_args=[*words, f"--rows-max={rows}"])
        from_topic = _rate(start_query(session, _JOB, job))
        made = _made_rows(session, changes, rows)
        query = window_events(_JOB.statistic(counted_changes(made, 10_000), 10_000), "tweets_stats")
        stream = query.writeStream.format("noop").option("checkpointLocation", str(home / "rate")).start()
        return StatisticsRate(from_topic, _rate(stream))


def window_latency() -> WindowLatency:
    """S2: measure the time from the end of a window to its event in the topic, for both statistics at 500 tweets a second."""
    changes = _changes(1000, LIVE_BYTES)
    with broker_process("--topic", "tweets", "--topic", "users") as (port, _), folder() as home:
        address = f"127.0.0.1:{port}"
        words = ("spark", "all", "--broker", address, "--checkpoint", home / "checkpoint", "--master", MASTER)
        with program(home / "log", *words, "--ui-port", 0, "--window", f"{WINDOW_S}s"), SyncClient(address) as client:
            _publish_paced(client, changes)
            late = [_lateness_s(window) for window in _windows(client)[WARM_WINDOWS:]]
        with _session(home) as session:
            return WindowLatency(statistics.median(late), _empty_trigger(session, home))


@contextmanager
def _session(home: Path) -> Iterator[SparkSession]:
    session = build_session(MASTER, app="tweetwire-bench", scratch=home / "scratch", jit="full")
    try:
        yield session
    finally:
        session.stop()


def _changes(count: int, size: int) -> list[dict[str, Any]]:
    """Make change events with all members that the statistics read, padded to lines of about `size` bytes."""
    dice = random.Random(1)
    return [
        {
            "op": "insert",
            "document": {
                "lang": dice.choice(["en", "ja", "es", "pt"]),
                "kind": dice.choice(["original", "reply", "retweet"]),
                "user": {"id_str": str(dice.randrange(5000))},
                "hashtags": [f"tag{dice.randrange(50)}" for _ in range(dice.randrange(3))],
                "mentions": [f"user{dice.randrange(500)}" for _ in range(dice.randrange(2))],
                "sentiment": round(dice.uniform(-1, 1), 4),
                "engagement": round(dice.random(), 4),
                **({"text": "x" * (size - SMALLEST_BYTES)} if size > SMALLEST_BYTES else {}),
            },
        }
        for _ in range(count)
    ]


def _backlog(changes: list[dict[str, Any]], count: int) -> Iterator[Event]:
    """Yield events that fill some windows. The last event has the current time."""
    first = time.time_ns() // 1_000_000 - count * 1000 // BACKLOG_RATE
    for n in range(count):
        yield Event(id=str(n), msg={**changes[n % len(changes)], "at": first + n * 1000 // BACKLOG_RATE})


def _made_rows(session: SparkSession, changes: list[dict[str, Any]], rows: int) -> DataFrame:
    """Make the same rows with Spark alone, from messages that are already parsed."""
    kind = _JOB.columns["msg"].dataType
    assert isinstance(kind, StructType)
    messages = fn.array(*(fn.from_json(fn.lit(json.dumps(change)), kind) for change in changes[:100]))
    made = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    return made.select(
        fn.col("value").alias("offset"), "timestamp", messages[(fn.col("value") % 100).cast("int")].alias("msg")
    )


def _rate(query: StreamingQuery) -> float:
    deadline = time.monotonic() + 300
    try:
        while (last := query.lastProgress) is None or last.batchId + 1 < BATCHES:
            if not query.isActive or time.monotonic() > deadline:
                raise RuntimeError(f"the query ended early: {query.exception()}")
            time.sleep(LOOK_S)
        batches = [batch for batch in query.recentProgress if batch.numInputRows][WARM_BATCHES:BATCHES]
    finally:
        query.stop()
    seconds = sum(batch.durationMs["triggerExecution"] for batch in batches) / 1000
    return float(sum(batch.numInputRows for batch in batches) / seconds)


def _publish_paced(client: SyncClient, changes: list[dict[str, Any]]) -> None:
    """Publish at the live rate until enough windows have been published. Raises RuntimeError if they take too long."""
    began = time.monotonic()
    sent = 0
    while len(_windows(client)) < WARM_WINDOWS + WINDOWS:
        seconds = time.monotonic() - began
        if seconds > LIVE_S_MAX:
            raise RuntimeError(f"{len(_windows(client))} windows in {seconds:.0f} s; the machine is too slow for Spark")
        due = int(seconds * LIVE_RATE)
        at = time.time_ns() // 1_000_000
        client.publish_many("tweets", [Event(id=str(n), msg={**changes[n % 1000], "at": at}) for n in range(sent, due)])
        sent = due
        time.sleep(0.02)


def _windows(client: SyncClient) -> list[StoredEvent]:
    if all(topic.topic != _JOB.topic for topic in client.topics()):
        return []
    return client.read(_JOB.topic, 0).events


def _lateness_s(window: StoredEvent) -> float:
    return window.timestamp / 1000 - window.decode(TweetsWindow).window.end_at.timestamp()


def _empty_trigger(session: SparkSession, home: Path) -> float:
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(home / "empty")).start()
    try:
        while len(query.recentProgress) < 30:
            time.sleep(0.1)
        return statistics.median(batch.durationMs["triggerExecution"] for batch in query.recentProgress[10:]) / 1000
    finally:
        query.stop()
