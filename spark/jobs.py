"""The jobs: which topics go through which statistic into which topic."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark.changes import change_type, counted_changes
from spark.options import broker_options
from spark.rows import columns
from spark.session import local_cores
from spark.settings import SparkSettings
from spark.stats_topic import window_events
from spark.tweets_stats import tweets_stats
from spark.users_stats import users_stats

__all__ = ["JOBS", "Job", "checkpoint_of", "jobs_of", "sources_of", "start_query"]

_POLL_S = 0.1
"""How often the source looks for a window that has ended; looking costs the broker one command."""
_CORES_PER_STORE = 4
"""Each of a query's shuffle partitions is a state store: a task and some files of every micro-batch, to merge a few windows.

One merges what at least four cores count (0.6 µs a tweet, of 12 in all).
"""
_PARTITIONS = "spark.sql.shuffle.partitions"
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"


class Job(Struct, frozen=True):
    """A statistic of changes: `statistic(changes, window in ms)` becomes the events of `topic`.

    `columns` are those that it needs of the source: reading and moving any other would cost as much again.
    """

    name: str
    topic: str
    statistic: Callable[[DataFrame, int], DataFrame]
    reads_users: bool
    columns: StructType


_TWEETS_STATS = Job(
    "tweets-stats",
    "tweets_stats",
    tweets_stats,
    reads_users=False,
    columns=columns(
        "offset",
        "timestamp",
        "watermark",
        msg=change_type(["lang", "kind", "hashtags", "mentions", "sentiment", "engagement"], ["id_str"]),
    ),
)
_USERS_STATS = Job(
    "users-stats",
    "users_stats",
    users_stats,
    reads_users=True,
    columns=columns(
        "topic",
        "offset",
        "timestamp",
        "watermark",
        msg=change_type(["engagement"], ["id_str", "screen_name", "followers_count", "verified"]),
    ),
)

JOBS = {job.name: job for job in (_TWEETS_STATS, _USERS_STATS)}


def jobs_of(name: str) -> list[Job]:
    """Give the jobs that a person means by `name`, which may be ``all``."""
    return list(JOBS.values()) if name == "all" else [JOBS[name]]


def sources_of(job: Job, settings: SparkSettings) -> list[str]:
    """Give the topics that a job follows."""
    return [settings.tweets_topic, *([settings.users_topic] if job.reads_users else [])]


def checkpoint_of(job: Job, settings: SparkSettings) -> Path:
    """Give the folder of what a job has counted; the state of windows of one length says nothing about those of another."""
    return settings.checkpoint.absolute() / f"{job.name}-{round(settings.window * 1000)}ms"


def start_query(session: SparkSession, job: Job, settings: SparkSettings) -> StreamingQuery:
    """Start a job, or go on where its checkpoint ends."""
    window_ms = round(settings.window * 1000)
    users_topic = settings.users_topic if job.reads_users else None
    changes = counted_changes(_rows(session, job, settings), window_ms, users_topic)
    writer = (
        window_events(job.statistic(changes, window_ms), job.topic)
        .writeStream.format("tweetwire")
        .queryName(job.name)
        .outputMode("append")
        .options(**broker_options(settings.login()))
        .option("topic", job.topic)
        .option("totals", job.topic)
        .option("checkpointLocation", str(checkpoint_of(job, settings)))
        .trigger(processingTime=f"{_POLL_S} seconds")
    )
    with _meanwhile(session, {_EMPTY_BATCHES: "false", _PARTITIONS: str(_state_stores(session))}):
        return writer.start()


def _state_stores(session: SparkSession) -> int:
    cores = local_cores(str(session.sparkContext.master))
    return int(str(session.conf.get(_PARTITIONS))) if cores is None else -(-cores // _CORES_PER_STORE)


@contextmanager
def _meanwhile(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings for a query that starts meanwhile, which keeps those of its start."""
    before = {name: str(session.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


def _rows(session: SparkSession, job: Job, settings: SparkSettings) -> DataFrame:
    options = {
        **broker_options(settings.login()),
        "topic": ",".join(sources_of(job, settings)),
        "from": settings.from_,
        "maxRecordsPerTrigger": str(settings.rows_max),
        "paced": "true",
        "watermark": _milliseconds(settings.watermark),
        "window": _milliseconds(settings.window),
        "idle": _milliseconds(settings.idle),
        "every": _milliseconds(settings.trigger),
        "early": "true",
        "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
    }
    return session.readStream.format("tweetwire").schema(job.columns).options(**options).load()


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
