"""The brokers that share a central engine with this one, as its bridge has seen them."""

from typing import Final

from dashboard.figures.cluster import broker_rows, centre_rows, held_rows, views_of
from dashboard.link import DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.widgets import RowsTable, card
from tweetwire.cluster import CLUSTER_VIEW

__all__ = ["build"]

_EMPTY: Final = "no bridge of this broker has seen a central engine in the last hour: tweetwire bridge --help"
_CENTRE_COLUMNS: Final = (
    ("centre", "central engine", "mono"),
    ("brokers", "brokers", "number"),
    ("detail", "state", "text"),
)
_BROKER_COLUMNS: Final = (
    ("address", "broker", "text"),
    ("state", "state", "state"),
    ("detail", "detail", "text"),
    ("lag", "lag", "number"),
    ("topics", "topics", "number", True),
    ("centre", "central engine", "mono", True),
    ("broker", "identity", "mono", True),
    ("version", "version", "text", True),
)
_HELD_COLUMNS: Final = (
    ("topic", "topic", "text"),
    ("address", "broker", "text"),
    ("next", "next", "number"),
    ("lag", "lag", "number"),
    ("earliest", "earliest", "number", True),
    ("mark", "mark", "text", True),
)


def build(link: DashboardLink) -> Refresh:
    """Build the page and return the function that updates it."""
    with card("Central engines"):
        centres = RowsTable(_CENTRE_COLUMNS, key="centre", empty=_EMPTY, label="central engines")
    with card("Brokers"):
        brokers = RowsTable(_BROKER_COLUMNS, key="key", empty=_EMPTY, label="brokers")
    with card("Topics of all brokers"):
        held = RowsTable(_HELD_COLUMNS, key="key", empty="no topic is known", label="topics of all brokers")

    async def refresh() -> None:
        latest = link.latest
        events = await link.newest(CLUSTER_VIEW)
        views = views_of(events, latest.get("now_ms", events[-1].timestamp if events else 0))
        centres.show(centre_rows(views))
        brokers.show(broker_rows(views, latest.get("identity", "")))
        held.show(held_rows(views))

    return refresh
