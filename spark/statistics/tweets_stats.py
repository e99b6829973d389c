"""Statistics of the tweets of each window, as one row per window."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from spark.statistics.tops import top, tracked

__all__ = ["NEUTRAL_BELOW", "UNIQUE_USERS_ERROR", "tweets_stats"]

NEUTRAL_BELOW = 0.05
"""VADER's own thresholds: a compound score from 0.05 on is positive, one from −0.05 down is negative."""

UNIQUE_USERS_ERROR = 0.0163
"""Relative standard deviation of `unique_users`: 1.04 / √2^12, as of any HyperLogLog with 2^12 registers."""

_REGISTERS_LOG2 = 12


def tweets_stats(changes: DataFrame, window_ms: int) -> DataFrame:
    """Aggregate the rows of `counted_changes` by tumbling windows.

    Percentiles are exact and interpolated as in numpy; `unique_users` is approximate (HyperLogLog). Late tweets are counted
    in `late` only.

    Args:
        changes: rows of `counted_changes`.
        window_ms: the length of a window, in milliseconds.

    Returns:
        `window`, and the members of the topic `tweets_stats` except `is_final`.
    """
    tweets = changes.where(~fn.col("is_user")).select(
        fn.window("event_time", f"{window_ms} milliseconds").alias("window"),
        "*",
        *(_distinct(column).alias(f"distinct_{column}") for column in _TAGS),
    )
    is_tweet = (fn.col("place") == 0) & ~fn.col("is_late")
    rows = tweets.withColumn("place", fn.explode(_places())).select(
        "window",
        ((fn.col("place") == 0) & fn.col("is_late")).alias("is_late"),
        is_tweet.alias("is_tweet"),
        *(fn.when(is_tweet, fn.col(name)).alias(name) for name in _NUMBERS),
        fn.when(is_tweet, fn.coalesce("kind", fn.lit("original"))).alias("kind"),
        fn.when(is_tweet, fn.coalesce("lang", fn.lit("und"))).alias("lang"),
        fn.when(is_tweet, fn.col("user.id_str")).alias("user"),
        *(fn.when(~fn.col("is_late"), fn.get(f"distinct_{column}", "place")).alias(column) for column in _TAGS),
    )
    return rows.groupBy("window").agg(*_aggregates()).select("window", *_members(window_ms))


_NUMBERS = ("sentiment", "engagement", "lag_ms")
_KINDS = ("original", "reply", "retweet", "quote")
_TAGS = ("hashtags", "mentions")


def _distinct(column: str) -> Column:
    # Most tweets have at most one tag, and making a set for each tweet would take a tenth of the time.
    return fn.when(fn.size(column) > 1, fn.array_distinct(column)).otherwise(fn.col(column))


def _places() -> Column:
    """Return an index for each entry of a tweet's longest list.

    Each index becomes a row, so that one pass counts tweets and tags.
    """
    most = fn.greatest(*(fn.size(f"distinct_{column}") for column in _TAGS), fn.lit(1))
    return fn.sequence(fn.lit(0), fn.when(fn.col("is_late"), fn.lit(0)).otherwise(most - 1))


def _aggregates() -> list[Column]:
    sentiment = fn.col("sentiment")
    return [
        fn.count_if("is_tweet").alias("tweets"),
        fn.count_if("is_late").alias("late"),
        *(fn.count_if(fn.col("kind") == kind).alias(kind) for kind in _KINDS),
        tracked("lang").alias("languages"),
        *(tracked(column).alias(column) for column in _TAGS),
        fn.avg(sentiment).alias("sentiment_mean"),
        fn.percentile(sentiment, [0.5, 0.95]).alias("sentiment"),
        fn.count_if(sentiment >= NEUTRAL_BELOW).alias("positive"),
        fn.count_if(fn.abs(sentiment) < NEUTRAL_BELOW).alias("neutral"),
        fn.count_if(sentiment <= -NEUTRAL_BELOW).alias("negative"),
        fn.avg("engagement").alias("engagement_mean"),
        fn.percentile("engagement", [0.75, 0.85, 0.95]).alias("engagement"),
        # Use the sketch of Apache DataSketches, because approx_count_distinct takes ten times as long per row.
        fn.hll_sketch_agg("user", _REGISTERS_LOG2).alias("unique_users"),
        fn.percentile("lag_ms", [0.5, 0.95]).alias("lag_ms"),
    ]


def _members(window_ms: int) -> list[Column]:
    return [
        fn.col("tweets"),
        (fn.col("tweets") / fn.lit(window_ms / 1000)).alias("per_second"),
        fn.struct(*_KINDS).alias("kinds"),
        top(fn.col("languages")).alias("languages"),
        top(fn.col("hashtags")).alias("hashtags"),
        top(fn.col("mentions")).alias("mentions"),
        fn.struct(
            fn.col("sentiment_mean").alias("mean"),
            *_percentiles("sentiment", "p50", "p95"),
            "positive",
            "neutral",
            "negative",
        ).alias("sentiment"),
        fn.struct(fn.col("engagement_mean").alias("mean"), *_percentiles("engagement", "p75", "p85", "p95")).alias(
            "engagement"
        ),
        fn.coalesce(fn.hll_sketch_estimate("unique_users"), fn.lit(0)).alias("unique_users"),
        fn.struct(*_percentiles("lag_ms", "p50", "p95")).alias("lag_ms"),
        fn.col("late"),
    ]


def _percentiles(column: str, *names: str) -> list[Column]:
    return [fn.col(column)[place].alias(name) for place, name in enumerate(names)]
