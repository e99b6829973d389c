"""Statistics of the users who tweeted in each window, as one row per window."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

__all__ = ["TOP_SIZE", "users_of_windows", "users_stats"]

TOP_SIZE = 10


def users_of_windows(changes: DataFrame, window_ms: int) -> DataFrame:
    """Aggregate the rows of `counted_changes` by window and user: `tweets`, summed `engagement`, and the last profile.

    Rows with a null `user` collect new users, late tweets, and tweets without a user.
    """
    is_tweet = ~fn.col("is_user") & ~fn.col("is_late")
    user = fn.when(is_tweet, fn.col("user.id_str")).alias("user_id")
    profile = fn.struct("offset", "user.screen_name", "user.followers_count", "user.verified")
    return changes.groupBy(fn.window("event_time", f"{window_ms} milliseconds").alias("window"), user).agg(
        fn.count_if(is_tweet).alias("tweets"),
        fn.sum(fn.when(is_tweet, fn.col("engagement"))).alias("engagement"),
        fn.max(fn.when(is_tweet, profile)).alias("last"),
        fn.count_if(fn.col("is_user")).alias("new_users"),
        fn.count_if(~fn.col("is_user") & fn.col("is_late")).alias("late"),
    )


def users_stats(changes: DataFrame, window_ms: int) -> DataFrame:
    """Aggregate the rows of `counted_changes` by tumbling windows.

    Percentiles are exact and interpolated as in numpy. A tweet without a user counts for no user.

    Args:
        changes: rows of `counted_changes`.
        window_ms: the length of a window, in milliseconds.

    Returns:
        Rows of `window` and the members of the topic `users_stats` except `is_final`. `late` counts tweets that arrived after
        their window was final.
    """
    has_user = fn.col("user_id").isNotNull()
    followers = fn.when(has_user, fn.coalesce("last.followers_count", fn.lit(0)))
    grouped = (
        users_of_windows(changes, window_ms)
        .groupBy("window")
        .agg(
            fn.count_if(has_user).alias("active_users"),
            fn.coalesce(fn.sum("new_users"), fn.lit(0)).alias("new_users"),
            fn.avg(fn.when(has_user, fn.coalesce("last.verified", fn.lit(False)).cast("double"))).alias(
                "verified_share"
            ),
            fn.percentile(followers, [0.5, 0.95]).alias("followers"),
            fn.sum(fn.when(has_user, fn.col("tweets"))).alias("users_tweets"),
            _best("tweets", fn.col("tweets")),
            _best("engagement", fn.coalesce("engagement", fn.lit(0.0))),
            _best("followers", followers),
            fn.coalesce(fn.sum("late"), fn.lit(0)).alias("late"),
        )
    )
    return grouped.select("window", *_members())


def _best(name: str, measure: Column) -> Column:
    """Keep the users with the largest `measure`; of users with an equal measure, those whose id sorts first."""
    entry = fn.struct(
        (-measure).alias("rank"), fn.col("user_id").alias("key"), fn.col("last.screen_name").alias("screen_name")
    )
    # `min_by` sorts by rank and then by id, both ascending. The negated measure puts the largest measures first.
    known = fn.when(fn.col("user_id").isNotNull(), entry)
    return fn.min_by(entry, known, TOP_SIZE).alias(f"top_by_{name}")


def _members() -> list[Column]:
    return [
        fn.col("active_users"),
        fn.col("new_users"),
        fn.col("verified_share"),
        fn.struct(fn.col("followers")[0].alias("p50"), fn.col("followers")[1].alias("p95")).alias("followers"),
        (fn.col("users_tweets") / fn.col("active_users")).alias("tweets_per_user"),
        *(_listed(name) for name in ("tweets", "engagement", "followers")),
        fn.col("late"),
    ]


def _listed(name: str) -> Column:
    listed = fn.transform(
        f"top_by_{name}",
        lambda user: fn.struct(user["key"].alias("key"), user["screen_name"], (-user["rank"]).alias(name)),
    )
    return fn.coalesce(listed, fn.array()).alias(f"top_by_{name}")
