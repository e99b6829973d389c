"""The list of all subscriptions."""

from typing import Final

from dashboard.figures.subscriptions import subscription_rows
from dashboard.link import DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.widgets import RowsTable, card

__all__ = ["build"]

COLUMNS: Final = (
    ("subscription", "subscription", "link"),
    ("topic", "topic", "text"),
    ("pending", "pending", "number"),
    ("in_flight", "in flight", "number"),
    ("dead", "dead", "number"),
    ("rate", "settled", "number", True),
    ("settled", "settled in all", "number", True),
    ("delayed", "delayed", "number", True),
    ("redelivered", "redelivered", "number", True),
    ("consumers", "consumers", "number", True),
    ("durable", "durable", "text", True),
)


def build(link: DashboardLink) -> Refresh:
    """Build the page and return the function that updates it."""
    with card():
        rows = RowsTable(
            COLUMNS,
            key="key",
            label="subscriptions",
            empty="there are no subscriptions yet: sub orders as=billing",
        )

    async def refresh() -> None:
        rows.show(subscription_rows(link.latest, link.history))

    return refresh
