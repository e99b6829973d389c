"""One event: its members, its chain, and its state for each subscription."""

from typing import Any, Final

from nicegui import ui

from dashboard.figures import charts
from dashboard.figures.chain import Node, tree_data, tree_of
from dashboard.figures.dead_letters import redrive_lines
from dashboard.figures.subscriptions import standing_rows
from dashboard.figures.topics import event_members
from dashboard.link import Away, DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.standings import STANDING_COLUMNS, show_failures
from dashboard.pages.widgets import Chart, RowsTable, card, notify
from dashboard.words import pretty
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import StoredEvent

__all__ = ["build"]

SUBSCRIPTIONS_MAX: Final = 50
CHAIN_MAX: Final = 200
CHAIN_S: Final = 120.0
COLUMNS: Final = (("subscription", "subscription", "text"), *STANDING_COLUMNS[1:])


class EventPage:
    """The widgets of the page, and their update."""

    def __init__(self, link: DashboardLink, topic: str, offset: str) -> None:
        self._link = link
        self._topic = topic
        self._offset = int(offset) if offset.isdecimal() and len(offset) < 19 else -1
        self._event: StoredEvent | None = None
        self._failed: dict[str, Any] = {}
        with card("Event"):
            self._members = ui.element("dl").classes("members")
            self._msg = ui.label("looking for it …").classes("trace").props('tabindex=0 aria-label="msg"')
        with card("State by subscription"):
            self._standings = RowsTable(COLUMNS, key="key", label="standings", empty="the topic has no subscriptions")
            self._redrives = ui.element("div").classes("tools")
            self._failures = ui.element("div")
        with card("Chain"):
            self._chart = Chart("chain of events", empty="searching for its causes and effects …", classes="chain")
            self._lines = ui.element("div")

    async def refresh(self) -> None:
        """Update the page. Raises Away, Refusal."""
        if self._event is None:
            page = await self._link.read(check_name(self._topic), max(0, self._offset), 1)
            if not page.events or page.events[0].offset != self._offset:
                self._msg.set_text("the log does not have this event (any more)")
                return
            self._event = page.events[0]
            self._show_event(self._event)
            with self._lines:
                ui.timer(0.0, self._ask_chain, once=True)
        await self._show_standings()

    def _show_event(self, event: StoredEvent) -> None:
        with self._members:
            for name, value in event_members(event):
                with ui.element("dt"):
                    ui.label(name)
                with ui.element("dd"):
                    ui.label(value)
        self._msg.set_text(pretty(event.decode()))

    async def _show_standings(self) -> None:
        subscriptions = self._link.latest["topics"].get(self._topic, {}).get("subscriptions", {})
        # Only its own connection can ask about an anonymous subscription.
        names = [name for name, one in subscriptions.items() if one["durable"]][:SUBSCRIPTIONS_MAX]
        explained = []
        for name in names:
            try:
                explained.append(await self._link.report(f"explain {self._topic} @{self._offset} as={name}"))
            except Refusal:
                continue
        self._standings.show(standing_rows(explained))
        failed = {one["subscription"]: one for one in explained if one["errors"]}
        known = {name: (one["state"], len(one["errors"]), one["failed_tries"]) for name, one in failed.items()}
        if known != self._failed:
            self._failed = known
            self._show_failed(failed)

    def _show_failed(self, failed: dict[str, Any]) -> None:
        self._redrives.clear()
        self._failures.clear()
        for name, one in failed.items():
            if one["state"] == "dead":
                with self._redrives:
                    button = ui.button(f"Redrive to {name}", on_click=lambda _, name=name: self._redrive(name))
                    button.props("unelevated no-caps").set_enabled(self._link.is_admin)
            with self._failures:
                ui.label(f"failed tries of {name}").classes("hint")
                show_failures(one["errors"])

    async def _redrive(self, name: str) -> None:
        (line,) = redrive_lines([{"topic": self._topic, "subscription": name, "offset": self._offset}])
        try:
            await self._link.command(line)
        except (Refusal, Away) as error:
            notify(str(error), is_bad=True)
            return
        notify(f"goes out to {name} again")

    async def _ask_chain(self) -> None:
        """Trace the chain. The first trace of a broker takes long, so no other part of the page waits for it."""
        try:
            answer = await self._link.report(f"chain {self._topic} @{self._offset} limit={CHAIN_MAX}", CHAIN_S)
        except (Refusal, Away) as error:
            self._chart.say(str(error))
            return
        self._chart.say("it has no causes and no effects")
        self._show_chain(tree_of(answer))

    def _show_chain(self, nodes: list[Node]) -> None:
        if len(nodes) < 2:
            return
        self._chart.show(charts.tree(tree_data(nodes[0])), at_once=True)
        with self._lines:
            for node in nodes:
                with ui.element("div").classes("chain-line").style(f"padding-left: {1.5 * node.depth:g}em"):
                    if node.offset is None:
                        ui.label(f"{node.id} (not found)")
                    else:
                        ui.link(f"{node.place} {node.id}", f"/topics/{node.topic}/{node.offset}")
                        if node.is_asked:
                            ui.label("this one").classes("hint")


def build(link: DashboardLink, topic: str, offset: str) -> Refresh:
    """Build the page and return the function that updates it."""
    return EventPage(link, topic, offset).refresh
