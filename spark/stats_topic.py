"""Window rows as events of a statistics topic."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

__all__ = ["window_events"]


def window_events(stats: DataFrame, topic: str) -> DataFrame:
    """Make of each row (`window` and its statistics) the `id` and `msg` of one event.

    The id is ``<topic>:<start of the window>``, so a subscriber can name a window. `is_final` is always true: a window
    is published once, after the watermark has passed its end.
    """
    start, end = _iso("window.start"), _iso("window.end")
    members = [fn.col(name) for name in stats.columns if name != "window"]
    window = fn.struct(start.alias("start"), end.alias("end")).alias("window")
    message = fn.struct(window, *members, fn.lit(True).alias("is_final"))
    # Null members are kept: a reader should not have to tell "no tweets, so no mean" from a member that was renamed.
    text = fn.to_json(message, {"ignoreNullFields": "false"})
    return stats.select(fn.concat(fn.lit(f"{topic}:"), start).alias("id"), text.alias("msg"))


def _iso(column: str) -> Column:
    return fn.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
