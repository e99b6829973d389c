"""Count the most frequent values of a group, with ties ordered by the value."""

from pyspark.sql import Column
from pyspark.sql import functions as fn

__all__ = ["TRACKED_MAX", "top", "tracked"]

TRACKED_MAX = 50_000
"""Up to this number of different values of a window, the counts are exact. With more values, rare ones may share a count."""


def tracked(column: str) -> Column:
    """Count the values of `column` that are not null, as an aggregate for `top`.

    It is a frequent-items sketch (Misra-Gries as in Apache DataSketches). It is exact up to `TRACKED_MAX` different values,
    and its size is proportional to their number.
    """
    return fn.expr(f"approx_top_k({column}, {TRACKED_MAX}, {TRACKED_MAX}) FILTER (WHERE {column} IS NOT NULL)")


def top(counts: Column, size: int = 10) -> Column:
    """Return the `size` most frequent values of `tracked` as structs of `key` and `count`, ties ordered by key."""
    ranked = fn.transform(counts, lambda item: fn.struct((-item["count"]).alias("rank"), item["item"].alias("key")))
    best = fn.slice(fn.sort_array(ranked), 1, size)
    listed = fn.transform(best, lambda item: fn.struct(item["key"].alias("key"), (-item["rank"]).alias("count")))
    return fn.coalesce(listed, fn.array().cast("array<struct<key:string,count:bigint>>"))
