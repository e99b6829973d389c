"""The collections' documents as the changes that the statistics count.

The live statistics put a tweet into the window in which MongoDB stored it. Its document does not tell when that was
(`ingested_at` is up to one batch earlier), but the topic of the changes does. So `stored` joins the two: what a tweet
is comes from MongoDB, when it was stored and how long it took to the broker from the topic, where that holds it still.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import LongType, StringType, StructField, StructType

from broker.login import Login
from spark.backfill.collection import TWEETS, USERS
from spark.backfill.settings import BackfillSettings
from spark.changes import changed_at
from spark.options import broker_options
from spark.rows import columns

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
"""The columns of `spark.changes.counted_changes`."""


def stored_changes(session: SparkSession, settings: BackfillSettings, until_ms: int) -> DataFrame:
    """Give the tweets and new users of MongoDB up to `until_ms` as `counted_changes` would, none of them late.

    Where the topic does not tell, `lag_ms` is null, and of a user's profiles in a window that of the tweet ingested last
    is the last. A user counts as new when it was inserted, or first seen. What has no time at all is left out.
    """
    tweets = _timed(session, settings, _documents(session, settings, "tweets", TWEETS), settings.tweets_topic)
    users = _timed(session, settings, _documents(session, settings, "users", USERS), settings.users_topic)
    # Users that were there before the topic began are in it as snapshots, which are not new users.
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
    # Documents that the topic does not hold come before all that it does, in the order of their own time.
    before = fn.coalesce("offset", fn.col("own") - fn.lit(1 << 62))
    return told.withColumns({"at": fn.coalesce("at", "own"), "offset": before})


def _moments(session: SparkSession, login: Login, topic: str) -> DataFrame:
    """Say when each document of a topic of changes was first stored: `_id`, `op`, `at`, `lag_ms` and `offset`."""
    # What retention removes meanwhile counts at its own time, as what it had removed before.
    options = {**broker_options(login), "topic": topic, "failOnDataLoss": "false"}
    rows = session.read.format("tweetwire").schema(_TIMED).options(**options).load()
    arrived = fn.unix_millis("timestamp")
    at = changed_at(fn.col("msg.at"), arrived)
    told = fn.struct("offset", fn.col("msg.op").alias("op"), at.alias("at"), (arrived - at).alias("lag_ms"))
    # A snapshot that is taken anew tells of documents that the topic has already.
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
