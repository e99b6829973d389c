"""S1, S2: statistics by Spark, of a backlog and live, beside Spark's own source and an empty query."""

import json
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from bench.broker_process import broker_process
from bench.programs import folder, program
from bench.settings import BenchSettings
from broker import Event, StoredEvent, SyncClient
from spark.changes import counted_changes
from spark.jobs import JOBS, start_query
from spark.session import build_session
from spark.settings import SparkSettings
from spark.stats_topic import window_events

__all__ = ["StatisticsRate", "WindowLatency", "backlog_statistics", "window_latency"]

MASTER: Final = "local[2]"
BATCHES: Final = 10
WARM_BATCHES: Final = 6
LOOK_S: Final = 0.5
"""How often a query is looked at: its progress comes as text, and reading that takes Java and Python milliseconds."""
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
    """Seconds from a window's end to its event in the topic (median), and those of an empty query's trigger."""

    window: float
    empty_trigger: float


def backlog_statistics(settings: BenchSettings) -> StatisticsRate:
    """S1: the statistics of a backlog, in the last of its micro-batches: in the first, Java compiles the query.

    At the benchmark's own size a micro-batch is as large as the program's default; a job's first are smaller.
    """
    changes = _changes(1000, settings.size)
    rows = max(100, settings.events)
    count = BATCHES * rows
    with broker_process("--topic", "tweets") as (port, _), folder() as home, _session(home) as session:
        with SyncClient(f"127.0.0.1:{port}") as client:
            client.publish_many("tweets", _backlog(changes, count))
        words = ["tweets-stats", f"--broker=127.0.0.1:{port}", f"--checkpoint={home / 'checkpoint'}", "--trigger=0s"]
        job = SparkSettings(_cli_parse_args=[*words, f"--rows-max={rows}"])  # type: ignore[call-arg]
        from_topic = _rate(start_query(session, _JOB, job))
        made = _made_rows(session, changes, rows)
        query = window_events(_JOB.statistic(counted_changes(made, 10_000), 10_000), "tweets_stats")
        stream = query.writeStream.format("noop").option("checkpointLocation", str(home / "rate")).start()
        return StatisticsRate(from_topic, _rate(stream))


def window_latency() -> WindowLatency:
    """S2: both statistics live at 500 tweets a second; how long after its end each window is in the topic."""
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
    """Make change events with all that the statistics read, padded by a text to stored lines of about `size` bytes."""
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
    """Give events whose times end now, so many a second that they fill some windows."""
    first = time.time_ns() // 1_000_000 - count * 1000 // BACKLOG_RATE
    for n in range(count):
        yield Event(id=str(n), msg={**changes[n % len(changes)], "at": first + n * 1000 // BACKLOG_RATE})


def _made_rows(session: SparkSession, changes: list[dict[str, Any]], rows: int) -> DataFrame:
    """Make the same rows by Spark alone, out of messages that are parsed already."""
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
    """Publish at the live rate until enough windows have been published. Raises RuntimeError where none come."""
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
    return window.timestamp / 1000 - datetime.fromisoformat(window.decode()["window"]["end"]).timestamp()


def _empty_trigger(session: SparkSession, home: Path) -> float:
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(home / "empty")).start()
    try:
        while len(query.recentProgress) < 30:
            time.sleep(0.1)
        return statistics.median(batch.durationMs["triggerExecution"] for batch in query.recentProgress[10:]) / 1000
    finally:
        query.stop()
