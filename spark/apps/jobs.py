"""The jobs. Each job reads topics, computes one statistic, and publishes it to one topic."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark.apps.session import local_cores
from spark.apps.settings import SparkSettings
from spark.connector.options import broker_options
from spark.connector.rows import columns
from spark.statistics.changes import change_type, counted_changes
from spark.statistics.stats_topic import window_events
from spark.statistics.tweets_stats import tweets_stats
from spark.statistics.users_stats import users_stats

__all__ = ["JOBS", "StatisticsJob", "checkpoint_of", "jobs_of", "sources_of", "start_query"]

_POLL_S = 0.1
"""How often the source checks whether a window has ended; a check is one command for the broker."""
_CORES_PER_STORE = 4
"""The cores for each shuffle partition of a query.

Each partition is a state store: one task and some files in every micro-batch, to merge a few windows. One store can merge
the results of at least four cores (0.6 µs a tweet, out of 12 in all).
"""
_PARTITIONS = "spark.sql.shuffle.partitions"
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"


class StatisticsJob(Struct, frozen=True):
    """A statistic of changes: `statistic(changes, window in ms)` returns the rows of the events of `topic`.

    `columns` are the columns of the source that it needs. Reading and moving other columns would double the time.
    """

    name: str
    topic: str
    statistic: Callable[[DataFrame, int], DataFrame]
    reads_users: bool
    columns: StructType


_TWEETS_STATS = StatisticsJob(
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
_USERS_STATS = StatisticsJob(
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


def jobs_of(name: str) -> list[StatisticsJob]:
    """Return the jobs named `name`, or all jobs for ``all``."""
    return list(JOBS.values()) if name == "all" else [JOBS[name]]


def sources_of(job: StatisticsJob, settings: SparkSettings) -> list[str]:
    """Return the topics that a job reads."""
    return [settings.tweets_topic, *([settings.users_topic] if job.reads_users else [])]


def checkpoint_of(job: StatisticsJob, settings: SparkSettings) -> Path:
    """Return the checkpoint folder of a job; windows of another length have another folder, since their state differs."""
    return settings.checkpoint.absolute() / f"{job.name}-{round(settings.window * 1000)}ms"


def start_query(session: SparkSession, job: StatisticsJob, settings: SparkSettings) -> StreamingQuery:
    """Start a job, or continue it from its checkpoint."""
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
    """Change Spark's settings until the end of the block. A query that starts in the block keeps these settings."""
    before = {name: str(session.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


def _rows(session: SparkSession, job: StatisticsJob, settings: SparkSettings) -> DataFrame:
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
