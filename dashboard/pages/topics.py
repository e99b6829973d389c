"""The list of all topics."""

from typing import Final

from dashboard.figures.topics import topic_rows
from dashboard.link import DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.widgets import RowsTable, card

__all__ = ["build"]

COLUMNS: Final = (
    ("topic", "topic", "link"),
    ("events", "events", "number"),
    ("rate", "rate", "number"),
    ("earliest", "earliest", "number", True),
    ("next", "next", "number", True),
    ("size", "size", "number", True),
    ("subscriptions", "subscriptions", "number", True),
    ("dead", "dead", "number"),
)


def build(link: DashboardLink) -> Refresh:
    """Build the page and return the function that updates it."""
    with card():
        rows = RowsTable(
            COLUMNS,
            key="topic",
            label="topics",
            empty='there are no topics yet; the first event makes one: pub orders {"id":"o-1","msg":{"total":12.5}}',
        )

    async def refresh() -> None:
        rows.show(topic_rows(link.latest, link.history))

    return refresh
