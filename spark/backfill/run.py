"""The backfill from its start to its end: look whether everything is there, compute, publish, tell."""

import time
from functools import partial
from importlib.util import find_spec
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct
from py4j.protocol import Py4JError
from pymongo import MongoClient
from pymongo.errors import ConfigurationError, InvalidURI, PyMongoError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.errors import StartError
from broker.mongodb import no_address, unanswered
from broker.program import logger
from spark.backfill.changes import stored_changes
from spark.backfill.collection import CollectionSource
from spark.backfill.results import Published, publish_windows, windows_of
from spark.backfill.settings import BackfillSettings
from spark.driver_thread import DriverThread
from spark.errors import sentence_of
from spark.jobs import Job, jobs_of
from spark.link import see_broker
from spark.session import build_session, end_session

__all__ = ["Outcome", "backfill", "compute"]

_TELL_EVERY_S = 2.0
_CANCEL_EVERY_S = 0.2


class Outcome(Struct):
    """What a backfill read (tweets and new users in complete windows) and what it published, by topic."""

    tweets: int
    new_users: int
    published: dict[str, Published]


async def backfill(settings: BackfillSettings, stop: anyio.Event) -> None:
    """Compute and publish everything, or until `stop`. Raises StartError and BrokerUnreachable."""
    _see_packages()
    await to_thread.run_sync(see_broker, settings.login(), _topics_read(settings))
    await to_thread.run_sync(_see_mongodb, settings)
    with DriverThread() as thread:
        session = await thread.run(partial(build_session, settings.master, ui_port=settings.ui_port))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_end_when, stop, session)
                tasks.start_soon(_tell_progress, session)
                outcome = await _computed(session, settings, stop, thread)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await thread.run(partial(end_session, session))
    if outcome is not None:
        _tell(outcome)


def compute(session: SparkSession, settings: BackfillSettings) -> Outcome:
    """Read MongoDB once, and compute and publish the statistics one after the other."""
    session.dataSource.register(CollectionSource)
    window_ms = round(settings.window * 1000)
    newest_ms = round((time.time() - settings.complete_after) * 1000)
    changes = stored_changes(session, settings, newest_ms - newest_ms % window_ms).persist(StorageLevel.DISK_ONLY)
    try:
        counts = {row["is_user"]: row["count"] for row in changes.groupBy("is_user").count().collect()}
        outcome = Outcome(counts.get(False, 0), counts.get(True, 0), {})
        logger().info("backfill: MongoDB is read", tweets=outcome.tweets, new_users=outcome.new_users)
        for job in jobs_of(settings.job):
            topic = _results_of(job, settings)
            windows = windows_of(job.statistic(_of(changes, job.reads_users), window_ms), topic, window_ms)
            outcome.published[topic] = publish_windows(windows, job.topic, topic, settings)
        return outcome
    finally:
        changes.unpersist()


def _topics_read(settings: BackfillSettings) -> list[str]:
    """Name what is read: the results, whose totals are gone on with, and the topics that tell when something was stored."""
    results = [_results_of(job, settings) for job in jobs_of(settings.job)]
    return results if settings.event_time == "ingested" else [settings.tweets_topic, settings.users_topic, *results]


def _results_of(job: Job, settings: BackfillSettings) -> str:
    return f"{job.topic}{settings.suffix}"


def _of(changes: DataFrame, reads_users: bool) -> DataFrame:
    return changes if reads_users else changes.where("NOT is_user")


async def _computed(
    session: SparkSession, settings: BackfillSettings, stop: anyio.Event, thread: DriverThread
) -> Outcome | None:
    """Give the outcome, None where `stop` cut it off."""
    try:
        return await thread.run(partial(compute, session, settings))
    except (PySparkException, Py4JError) as error:
        if stop.is_set():
            logger().warning("backfill: stopped before its end; run it again, it publishes what is missing")
            return None
        raise StartError(f"the backfill failed ({sentence_of(error)}); run it again, it goes on") from error


async def _end_when(stop: anyio.Event, session: SparkSession) -> None:
    await stop.wait()
    # Again and again, since the next job may be about to start; not by the driver's thread, which waits for it.
    while True:
        await to_thread.run_sync(session.sparkContext.cancelAllJobs)
        await anyio.sleep(_CANCEL_EVERY_S)


async def _tell_progress(session: SparkSession) -> None:
    """Log every 2 s how far Spark's running stages are."""
    while True:
        await anyio.sleep(_TELL_EVERY_S)
        for stage, done, tasks in await to_thread.run_sync(_stages, session):
            logger().info("backfill: working", stage=stage, tasks=f"{done}/{tasks}")


def _stages(session: SparkSession) -> list[tuple[int, int, int]]:
    tracker = session.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return [(info.stageId, info.numCompletedTasks, info.numTasks) for info in infos if info is not None]


def _tell(outcome: Outcome) -> None:
    for topic, published in outcome.published.items():
        logger().info("backfill: published", topic=topic, windows=published.stored, known_before=published.known)
    logger().info("backfill: done", tweets=outcome.tweets, new_users=outcome.new_users)


def _see_packages() -> None:
    if find_spec("pymongoarrow") is None:
        raise StartError("the backfill needs pymongoarrow; install it with the extra tweetwire[backfill]")


def _see_mongodb(settings: BackfillSettings) -> None:
    timeout_ms = round(settings.mongo_timeout * 1000)
    try:
        client: MongoClient[dict[str, Any]] = MongoClient(settings.mongo_url, serverSelectionTimeoutMS=timeout_ms)
        with client:
            client.admin.command("ping")
            there = client[settings.database].list_collection_names()
    except (ConfigurationError, InvalidURI, ValueError) as error:
        raise StartError(no_address(error)) from error
    except PyMongoError as error:
        raise StartError(unanswered(error)) from error
    if "tweets" not in there:
        raise StartError(f"MongoDB has no tweets in the database {settings.database}; run the ingester, or --database")
