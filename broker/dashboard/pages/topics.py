"""All topics."""

from typing import Final

from broker.dashboard.figures.topics import topic_rows
from broker.dashboard.link import Link
from broker.dashboard.pages.frame import Refresh
from broker.dashboard.pages.widgets import Rows, card

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


def build(link: Link) -> Refresh:
    """Build the page; returns what brings it up to date."""
    with card():
        rows = Rows(
            COLUMNS,
            key="topic",
            label="topics",
            empty='there are no topics yet; the first event makes one: pub orders {"id":"o-1","msg":{"total":12.5}}',
        )

    async def refresh() -> None:
        rows.show(topic_rows(link.latest, link.history))

    return refresh
