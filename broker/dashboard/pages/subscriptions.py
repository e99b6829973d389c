"""All subscriptions."""

from typing import Final

from broker.dashboard.figures.subscriptions import subscription_rows
from broker.dashboard.link import Link
from broker.dashboard.pages.frame import Refresh
from broker.dashboard.pages.widgets import Rows, card

__all__ = ["build"]

COLUMNS: Final = (
    ("subscription", "subscription", "link"),
    ("topic", "topic", "text"),
    ("pending", "pending", "number"),
    ("in_flight", "in flight", "number"),
    ("dead", "dead", "number"),
    ("rate", "settled", "number", True),
    ("settled", "settled in all", "number", True),
    ("delayed", "in a pause", "number", True),
    ("redelivered", "redelivered", "number", True),
    ("consumers", "consumers", "number", True),
    ("durable", "durable", "text", True),
)


def build(link: Link) -> Refresh:
    """Build the page; returns what brings it up to date."""
    with card():
        rows = Rows(
            COLUMNS,
            key="key",
            label="subscriptions",
            empty="nobody subscribes yet: sub orders as=billing",
        )

    async def refresh() -> None:
        rows.show(subscription_rows(link.latest, link.history))

    return refresh
