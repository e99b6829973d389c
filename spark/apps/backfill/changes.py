"""Read the collections' documents as the changes that the statistics count.

The live statistics put a tweet into the window in which MongoDB stored it. The tweet's document does not contain that time
(`ingested_at` is up to one batch earlier), but the topic of the changes does. So `stored_changes` joins the two. The tweet
comes from MongoDB. The time at which MongoDB stored it and the lag to the broker come from the topic, if the topic still holds
the change.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark.apps.backfill.collection import TWEETS, USERS
from spark.apps.backfill.settings import BackfillSettings
from spark.connector.options import broker_options
from spark.connector.rows import columns
from spark.statistics.changes import changed_at
from tweetwire.runtime.login import Login

__all__ = ["CHANGES", "stored_changes"]

_TIMED = columns(
    "offset",
    "timestamp",
    "id",
    msg=StructType([StructField("op", StringType()), StructField("at", LongType())]),
)
_OWN_TIME = {"tweets": "ingested_at", "users": "first_seen"}
_MEMBERS = [field.name for field in TWEETS if field.name not in ("_id", "ingested_at")]

CHANGES = ["event_time", "is_user", "is_late", "lag_ms", "offset", *_MEMBERS]
"""The columns of `spark.statistics.changes.counted_changes`."""


def stored_changes(session: SparkSession, settings: BackfillSettings, until_ms: int) -> DataFrame:
    """Return MongoDB's tweets and new users before `until_ms` with the columns of `counted_changes`, none of them late.

    For documents that the topic does not hold, `lag_ms` is null, and a user's last profile in a window is that of the tweet
    ingested last. A user counts as new at the time it was inserted or first seen. Documents without any time are left out.

    Args:
        session: the Spark session.
        settings: the backfill's settings.
        until_ms: the end of the last window, in milliseconds since 1970 UTC.
    """
    tweets = _timed(session, settings, _documents(session, settings, "tweets", TWEETS), settings.tweets_topic)
    users = _timed(session, settings, _documents(session, settings, "users", USERS), settings.users_topic)
    # Users that were stored before the topic began are in it as events `snapshot`. They are not new users.
    new_users = users.where(fn.coalesce(fn.col("op"), fn.lit("insert")) == "insert")
    nulls = [fn.lit(None).cast(TWEETS[name].dataType).alias(name) for name in _MEMBERS]
    found = _changes(tweets, is_user=False).unionByName(_changes(new_users.select("*", *nulls), is_user=True))
    return found.where(fn.unix_millis("event_time") < until_ms)


def _changes(timed: DataFrame, *, is_user: bool) -> DataFrame:
    return timed.select(
        fn.timestamp_millis("at").alias("event_time"),
        fn.lit(is_user).alias("is_user"),
        fn.lit(False).alias("is_late"),
        "lag_ms",
        "offset",
        *_MEMBERS,
    )


def _timed(session: SparkSession, settings: BackfillSettings, documents: DataFrame, topic: str) -> DataFrame:
    """Add the columns `at`, `lag_ms`, `offset` and `op`, from the topic or from the documents' `own` time."""
    if settings.event_time == "ingested":
        nothing = fn.lit(None).cast("bigint")
        unknown = fn.lit(None).cast("string")
        return documents.withColumns({"at": fn.col("own"), "lag_ms": nothing, "offset": fn.col("own"), "op": unknown})
    told = documents.join(_moments(session, settings.login(), topic), "_id", "left")
    # Documents that the topic does not hold sort before all others, by their own time.
    before = fn.coalesce("offset", fn.col("own") - fn.lit(1 << 62))
    return told.withColumns({"at": fn.coalesce("at", "own"), "offset": before})


def _moments(session: SparkSession, login: Login, topic: str) -> DataFrame:
    """Return when each document of a topic was first stored: `_id`, `op`, `at`, `lag_ms` and `offset`."""
    # A change that retention removes meanwhile counts by the document's own time, like those removed earlier.
    options = {**broker_options(login), "topic": topic, "failOnDataLoss": "false"}
    rows = session.read.format("tweetwire").schema(_TIMED).options(**options).load()
    arrived = fn.unix_millis("timestamp")
    at = changed_at(fn.col("msg.at"), arrived)
    told = fn.struct("offset", fn.col("msg.op").alias("op"), at.alias("at"), (arrived - at).alias("lag_ms"))
    # A repeated snapshot contains documents that the topic already has.
    stored = rows.where(fn.col("msg.op").isin("insert", "snapshot")).groupBy(fn.col("id").alias("_id"))
    return stored.agg(fn.min(told).alias("first")).select("_id", "first.*")


def _documents(session: SparkSession, settings: BackfillSettings, name: str, schema: StructType) -> DataFrame:
    options = {
        "url": settings.mongo_url,
        "database": settings.database,
        "collection": name,
        "rows": str(settings.rows),
        "timeout_ms": str(round(settings.mongo_timeout * 1000)),
    }
    return (
        session.read.format("tweetwire-mongo")
        .schema(schema)
        .options(**options)
        .load()
        .withColumnRenamed(_OWN_TIME[name], "own")
    )
