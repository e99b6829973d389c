"""Convert window rows to events of a statistics topic."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

__all__ = ["window_events"]


def window_events(stats: DataFrame, topic: str) -> DataFrame:
    """Return the `id` and `msg` of one event for each row of `window` and its statistics.

    The id is ``<topic>:<start of the window>``, so that a subscriber can identify a window. `is_final` is always true: a
    window is published once, after the watermark has passed its end.
    """
    start, end = _iso("window.start"), _iso("window.end")
    members = [fn.col(name) for name in stats.columns if name != "window"]
    window = fn.struct(start.alias("start"), end.alias("end")).alias("window")
    message = fn.struct(window, *members, fn.lit(True).alias("is_final"))
    # Null members are kept, so that a reader can distinguish a missing mean from a renamed member.
    text = fn.to_json(message, {"ignoreNullFields": "false"})
    return stats.select(fn.concat(fn.lit(f"{topic}:"), start).alias("id"), text.alias("msg"))


def _iso(column: str) -> Column:
    return fn.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
