"""The figures at the top of the first page."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from dashboard.history import Counter, History, counter_of
from dashboard.words import number, rate

__all__ = ["Tile", "tiles"]


class Tile(NamedTuple):
    """One figure, and whether it needs attention."""

    label: str
    value: str
    is_bad: bool = False


def tiles(stats: Mapping[str, Any], history: History) -> list[Tile]:
    """Return the figures that show at a glance whether all is well."""
    subscriptions = [one for topic in stats["topics"].values() for one in topic["subscriptions"].values()]
    dead = sum(one["dead"] for one in subscriptions)
    published = sum(history.rate_now(counter_of(name, "next")) for name in stats["topics"])
    return [
        Tile("published", rate(published)),
        Tile("delivered", rate(history.rate_now(_total("delivered")))),
        Tile("acked", rate(history.rate_now(_total("acked")))),
        Tile("pending", number(sum(one["pending"] for one in subscriptions))),
        Tile("in flight", number(sum(one["in_flight"] for one in subscriptions))),
        Tile("dead", number(dead), is_bad=dead > 0),
        Tile("connections", number(stats["connections"])),
    ]


def _total(member: str) -> Counter:
    return lambda stats: stats.get(member)
