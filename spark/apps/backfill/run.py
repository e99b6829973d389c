"""The backfill from start to end: check the servers, compute, publish, report."""

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

from spark.apps.backfill.changes import stored_changes
from spark.apps.backfill.collection import CollectionSource
from spark.apps.backfill.results import Published, publish_windows, windows_of
from spark.apps.backfill.settings import BackfillSettings
from spark.apps.driver_thread import DriverThread
from spark.apps.jobs import StatisticsJob, jobs_of
from spark.apps.session import build_session, build_unless_stopped, end_session, stop_with_java
from spark.connector.errors import sentence_of
from spark.connector.link import see_broker
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.mongodb import no_address, unanswered
from tweetwire.runtime.program import logger

__all__ = ["Outcome", "backfill", "compute"]

_TELL_EVERY_S = 2.0
_CANCEL_EVERY_S = 0.2


class Outcome(Struct):
    """The tweets and new users that a backfill read in complete windows, and the windows it published, by topic."""

    tweets: int
    new_users: int
    published: dict[str, Published]


async def backfill(settings: BackfillSettings, stop: anyio.Event) -> None:
    """Compute and publish all windows, or until `stop`. Raises StartError and BrokerUnreachable."""
    _see_packages()
    await to_thread.run_sync(see_broker, settings.login(), _topics_read(settings))
    await to_thread.run_sync(_see_mongodb, settings)
    with DriverThread() as thread:
        build = partial(build_session, settings.master, ui_port=settings.ui_port)
        session, outcome = await build_unless_stopped(build, thread, stop), None
        if session is None:
            return
        try:
            async with stop_with_java(session, stop), anyio.create_task_group() as tasks:
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
    """Read MongoDB once, and compute and publish one statistic after the other."""
    session.dataSource.register(CollectionSource)
    window_ms = round(settings.window * 1000)
    newest_ms = round((time.time() - settings.complete_after) * 1000)
    changes = stored_changes(session, settings, newest_ms - newest_ms % window_ms).persist(StorageLevel.DISK_ONLY)
    try:
        counts = {row["is_user"]: row["count"] for row in changes.groupBy("is_user").count().collect()}
        outcome = Outcome(counts.get(False, 0), counts.get(True, 0), {})
        logger().info("backfill: read MongoDB", tweets=outcome.tweets, new_users=outcome.new_users)
        for job in jobs_of(settings.job):
            topic = _results_of(job, settings)
            windows = windows_of(job.statistic(_of(changes, job.reads_users), window_ms), topic, window_ms)
            outcome.published[topic] = publish_windows(windows, job.topic, topic, settings)
        return outcome
    finally:
        changes.unpersist()


def _topics_read(settings: BackfillSettings) -> list[str]:
    """Return the topics to read: the results, whose totals are continued, and the topics of changes, which have the times."""
    results = [_results_of(job, settings) for job in jobs_of(settings.job)]
    return results if settings.event_time == "ingested" else [settings.tweets_topic, settings.users_topic, *results]


def _results_of(job: StatisticsJob, settings: BackfillSettings) -> str:
    return f"{job.topic}{settings.suffix}"


def _of(changes: DataFrame, reads_users: bool) -> DataFrame:
    return changes if reads_users else changes.where("NOT is_user")


async def _computed(
    session: SparkSession, settings: BackfillSettings, stop: anyio.Event, thread: DriverThread
) -> Outcome | None:
    """Return the outcome, None if `stop` ended the computation."""
    try:
        return await thread.run(partial(compute, session, settings))
    except (PySparkException, Py4JError) as error:
        if stop.is_set():
            logger().warning("backfill: stopped early; run it again to publish the missing windows")
            return None
        raise StartError(f"the backfill failed ({sentence_of(error)}); run it again to continue") from error


async def _end_when(stop: anyio.Event, session: SparkSession) -> None:
    await stop.wait()
    # Cancel repeatedly, since the next job may be about to start. Do not use the driver's thread, which waits for the job.
    while True:
        await to_thread.run_sync(session.sparkContext.cancelAllJobs)
        await anyio.sleep(_CANCEL_EVERY_S)


async def _tell_progress(session: SparkSession) -> None:
    """Log every 2 s the progress of Spark's running stages."""
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
        raise StartError(
            f"MongoDB has no tweets in the database {settings.database}; run the ingester, or choose another: --database"
        )
