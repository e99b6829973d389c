"""The figures that ``top`` shows: the differences between two answers to ``stats``, as rows of tables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tweetwire.cli.display import table
from tweetwire.protocol.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["SubscriptionRow", "TopRows", "TopicRow", "picture", "rows_between"]


class TopicRow(NamedTuple):
    """A topic: the events published in a second, its end and size, and its consumers."""

    topic: str
    per_second: float
    next: int
    bytes: int
    consumers: int


class SubscriptionRow(NamedTuple):
    """A subscription: the events settled in a second, and the events that are not settled yet (`lag`)."""

    topic: str
    subscription: str
    per_second: float
    lag: int
    in_flight: int
    consumers: int
    dead: int


class TopRows(NamedTuple):
    """The rows of one picture, the busiest first."""

    published: float
    delivered: float
    topics: list[TopicRow]
    subscriptions: list[SubscriptionRow]


def rows_between(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> TopRows:
    """Return the rows for two answers to ``stats`` that are `seconds` apart.

    The rate of a topic or subscription that is new in `after` is 0. So is a rate that would be negative: the broker was
    started again, or the subscription was moved.
    """
    topics, subscriptions = [], []
    for name, topic in after["topics"].items():
        old = before["topics"].get(name, topic)
        figures = topic["subscriptions"]
        consumers = sum(one["consumers"] for one in figures.values())
        topics.append(
            TopicRow(name, _rate(old["next"], topic["next"], seconds), topic["next"], topic["bytes"], consumers)
        )
        for subscription, one in figures.items():
            settled = old["subscriptions"].get(subscription, one)["settled"]
            subscriptions.append(
                SubscriptionRow(
                    *(name, subscription, _rate(settled, one["settled"], seconds)),
                    *(
                        # The pending events include the delayed ones.
                        one["pending"] + one["in_flight"],
                        one["in_flight"],
                        one["consumers"],
                        one["dead"],
                    ),
                )
            )
    return TopRows(
        sum(row.per_second for row in topics),
        _rate(before["delivered"], after["delivered"], seconds),
        sorted(topics, key=lambda row: (-row.per_second, row.topic)),
        sorted(subscriptions, key=lambda row: (-row.lag, -row.per_second, row.topic, row.subscription)),
    )


def picture(title: str, rows: TopRows, lines: int | None = None) -> "RenderableType":
    """Return the rows as tables that take at most `lines` lines; None for all rows."""
    from rich.console import Group  # noqa: PLC0415 — see the module `display`
    from rich.text import Text  # noqa: PLC0415

    # Each table has a title and two lines at its head.
    most = None if lines is None else max(1, (lines - 9) // 2)
    topics = [
        (row.topic, _whole(row.per_second), f"@{row.next}", format_bytes(row.bytes), row.consumers)
        for row in rows.topics[:most]
    ]
    subscriptions = [
        (*row[:2], _whole(row.per_second), row.lag, row.in_flight, row.consumers, row.dead)
        for row in rows.subscriptions[:most]
    ]
    rates = f"{rows.published:,.0f} events/s published, {rows.delivered:,.0f} deliveries/s"
    return Group(
        Text(f"{title}: {rates}", "bold"),
        Text(),
        table(_title("topics", rows.topics, topics), ("topic", "events/s", "next", "size", "consumers"), topics),
        Text(),
        table(
            _title("subscriptions", rows.subscriptions, subscriptions),
            ("topic", "subscription", "settled/s", "lag", "in flight", "consumers", "dead"),
            subscriptions,
        ),
    )


def _title(name: str, all_: list[Any], shown: list[Any]) -> str:
    return name if len(all_) == len(shown) else f"{name} ({len(shown)} of {len(all_)})"


def _rate(before: int, after: int, seconds: float) -> float:
    return max(0, after - before) / seconds


def _whole(rate: float) -> int:
    return round(rate)
