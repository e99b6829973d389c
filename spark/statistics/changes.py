"""Prepare change events for the statistics: their schema, their event time, and the choice of those that count.

The source reports how far event time has come, and sends ticks (`spark.connector.progress`). Here this becomes Spark's own
watermark. The event times of ticks are a century in the future, and the watermark's delay is a century, too, so only ticks move
the watermark. If events moved it, the end of a window would depend on the division of the topic into batches.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

__all__ = ["CHANGE", "change_type", "changed_at", "counted_changes"]

_TWEET = {
    "lang": StringType(),
    "kind": StringType(),
    "hashtags": ArrayType(StringType()),
    "mentions": ArrayType(StringType()),
    "sentiment": DoubleType(),
    "engagement": DoubleType(),
}
_USER = {
    "id_str": StringType(),
    "screen_name": StringType(),
    "followers_count": LongType(),
    "verified": BooleanType(),
}


def change_type(tweet: Sequence[str], user: Sequence[str]) -> StructType:
    """Return the type of a change event's message with only these members of its tweet and of the tweet's user."""
    members = [StructField(name, _TWEET[name]) for name in tweet]
    profile = StructType([StructField(name, _USER[name]) for name in user])
    document = StructType([*members, StructField("user", profile)])
    return StructType(
        [StructField("op", StringType()), StructField("at", LongType()), StructField("document", document)]
    )


CHANGE = change_type([*_TWEET], [*_USER])
"""The members of a change event that the statistics use; values of another type are read as null."""

_CENTURY_MS = 36_525 * 86_400_000
_CENTURY = "36525 days"


def counted_changes(rows: DataFrame, window_ms: int, users_topic: str | None = None) -> DataFrame:
    """Select the changes that count from the source's rows, with their event time.

    These are the inserts and snapshots of tweets, and the inserts of `users_topic`.

    Args:
        rows: rows of the source. The column `watermark` may be missing, and `msg` may be text or a `change_type`.
        window_ms: the length of a window, in milliseconds.
        users_topic: the topic of the users' changes, None for none.

    Returns:
        The columns `event_time` (with Spark's watermark), `is_user` (a new user, not a tweet), `is_late`, `lag_ms` (from the
        change to the broker), `offset`, and the members of the document. A row is late if its window was final when it was
        read. Its event time is then the watermark, so that it is counted as late in the open window.
    """
    watermark = fn.coalesce(fn.col("watermark"), fn.lit(0)) if "watermark" in rows.columns else fn.lit(0)
    arrived = fn.unix_millis("timestamp")
    is_parsed = isinstance(rows.schema["msg"].dataType, StructType)
    parsed = rows.select(
        "offset",
        (fn.col("topic") == fn.lit(users_topic) if users_topic else fn.lit(False)).alias("is_user"),
        watermark.alias("watermark"),
        arrived.alias("arrived"),
        (fn.col("msg") if is_parsed else fn.from_json("msg", CHANGE)).alias("change"),
    )
    timed = parsed.withColumn("at", changed_at(fn.col("change.at"), fn.col("arrived"))).withColumn(
        "is_late", _window_end(fn.col("at"), window_ms) <= fn.col("watermark")
    )
    return (
        timed.withColumn("event_time", fn.timestamp_millis(_event_time_ms()))
        .withWatermark("event_time", _CENTURY)
        .where(_counts())
        .select(
            "event_time",
            "is_user",
            "is_late",
            (fn.col("arrived") - fn.col("at")).alias("lag_ms"),
            "offset",
            "change.document.*",
        )
    )


def changed_at(at: Column, arrived: Column) -> Column:
    """Return a change's time in milliseconds: its own `at`, limited to the range from 1970 to its arrival."""
    # Times long before 1970 could overflow 64 bits in later computations.
    return fn.greatest(fn.least(fn.coalesce(at, arrived), arrived), fn.lit(0))


def _event_time_ms() -> Column:
    tick = fn.col("watermark") + fn.lit(_CENTURY_MS)
    return fn.when(fn.col("offset").isNull(), tick).when(fn.col("is_late"), fn.col("watermark")).otherwise(fn.col("at"))


def _window_end(at: Column, window_ms: int) -> Column:
    return at - fn.pmod(at, fn.lit(window_ms)) + fn.lit(window_ms)


def _counts() -> Column:
    # Combine all conditions in one predicate that uses the event time. Spark would move a predicate without the event
    # time below the watermark, where it would drop the ticks.
    ops = fn.col("change.op").isin("insert", "snapshot")
    is_wanted = ops & (~fn.col("is_user") | (fn.col("change.op") == "insert"))
    return fn.when(fn.col("event_time") < fn.timestamp_millis(fn.lit(_CENTURY_MS)), is_wanted)
