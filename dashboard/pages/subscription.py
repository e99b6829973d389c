"""One subscription: its backlog, its consumers, and the state of its oldest events."""

from collections.abc import Mapping
from typing import Any, Final

from nicegui import ui

from dashboard.figures import charts
from dashboard.figures.subscriptions import standing_rows
from dashboard.link import DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.standings import STANDING_COLUMNS
from dashboard.pages.widgets import Chart, RowsTable, card
from dashboard.words import age, number, time_text
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal
from tweetwire.runtime.wording import policy_text

__all__ = ["build"]

OLDEST_MAX: Final = 20
CONSUMER_COLUMNS: Final = (
    ("client", "client", "text"),
    ("in_flight", "in flight", "number"),
    ("prefetch", "prefetch", "number"),
    ("peer", "from", "mono", True),
)


class SubscriptionPage:
    """The widgets of the page, and their update."""

    def __init__(self, link: DashboardLink, topic: str, name: str) -> None:
        self._link = link
        self._topic = topic
        self._name = name
        with card():
            self._summary = ui.label()
            self._oldest = ui.label()
            self._policy = ui.label().classes("mono")
        with ui.element("div").classes("halves"):
            with card("Pending by priority"):
                self._priorities = Chart("pending events by priority", empty="nothing is pending")
            with card("Consumers"):
                self._consumers = RowsTable(
                    CONSUMER_COLUMNS, key="peer", empty="no connection consumes it", label="consumers"
                )
        with card(f"The oldest unsettled events (up to {OLDEST_MAX})"):
            self._events = RowsTable(STANDING_COLUMNS, key="key", empty="everything is settled", label="oldest events")

    async def refresh(self) -> None:
        """Update the page. Raises Away, Refusal."""
        topic, name = check_name(self._topic), check_name(self._name)
        figures = self._link.latest["topics"].get(topic, {}).get("subscriptions", {}).get(name)
        if figures is None:
            self._summary.set_text("there is no such subscription (any more)")
            return
        self._show_figures(figures)
        if not figures["durable"]:
            self._oldest.set_text("only its own connection can read details of an unnamed subscription")
            return
        backlog = await self._link.report(f"backlog {topic} as={name}")
        self._priorities.show(
            charts.bars([(f"priority {priority}", count) for priority, count in backlog["by_priority"].items()])
        )
        # None if the broker has users and the subscription belongs to another user.
        self._consumers.show(backlog["consumers"] or [])
        await self._show_oldest(backlog["oldest"])
        self._events.show(standing_rows(await self._explained()))

    def _show_figures(self, figures: Mapping[str, Any]) -> None:
        counts = ("pending", "delayed", "in_flight", "dead", "settled", "redelivered", "overtaken")
        self._summary.set_text(", ".join(f"{number(figures[name])} {name.replace('_', ' ')}" for name in counts))
        self._policy.set_text(policy_text(figures["policy"]))

    async def _show_oldest(self, oldest: int | None) -> None:
        text = "nothing is unsettled"
        if oldest is not None:
            page = await self._link.read(self._topic, oldest, 1)
            if page.events:
                now_s = self._link.history.latest.at_s if self._link.history.latest else 0.0
                made = page.events[0].timestamp
                text = f"oldest unsettled: @{oldest} of {time_text(made)} UTC, {age(now_s - made / 1000)} ago"
        self._oldest.set_text(text)

    async def _explained(self) -> list[Any]:
        runs = (await self._link.report(f"unsettled {self._topic} as={self._name} limit={OLDEST_MAX}"))["offsets"]
        explained = []
        for offset in [offset for first, last in runs for offset in range(first, last + 1)][:OLDEST_MAX]:
            try:
                explained.append(await self._link.report(f"explain {self._topic} @{offset} as={self._name}"))
            except Refusal:
                continue
        return explained


def build(link: DashboardLink, topic: str, name: str) -> Refresh:
    """Build the page and return the function that updates it."""
    return SubscriptionPage(link, topic, name).refresh
