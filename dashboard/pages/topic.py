"""One topic: its documentation, and its log to browse by offset, time, id or text."""

from collections.abc import Mapping
from typing import Any, Final

from nicegui import ui

from dashboard.figures.topics import confirmation_text, event_rows, is_place, mark_rows, matches
from dashboard.link import Away, DashboardLink
from dashboard.pages.documentation import DocumentationPage
from dashboard.pages.frame import Refresh
from dashboard.pages.widgets import RowsTable, card, notify
from dashboard.words import number
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.units import format_bytes

__all__ = ["build"]

ROWS_MAX: Final = 50
SCAN_PAGE: Final = 1000
SCAN_MAX: Final = 20_000
COLUMNS: Final = (
    ("event", "event", "link"),
    ("time", "time (UTC)", "text", True),
    ("id", "id", "mono"),
    ("priority", "priority", "number", True),
    ("key", "key", "mono", True),
    ("msg", "msg", "mono"),
)


MARK_COLUMNS: Final = (
    ("mark", "mark", "mono"),
    ("offset", "offset", "mono"),
    ("lag", "lag (events)", "number"),
    ("excepted", "excepted", "number", True),
    ("overtaken", "overtaken", "number", True),
)


class MarksCard:
    """How far other systems have the events of a topic. It is hidden for a topic without marks."""

    def __init__(self) -> None:
        with card("Marks") as self._card:
            self._confirmation = ui.label().classes("hint")
            self._rows = RowsTable(MARK_COLUMNS, key="mark", label="marks", empty="no mark is made yet")

    def show(self, report: Mapping[str, Any]) -> None:
        """Show the marks in the report on a topic."""
        rows, confirmation = mark_rows(report), confirmation_text(report)
        self._card.set_visibility(bool(rows or confirmation))
        self._confirmation.set_text(confirmation)
        self._rows.show(rows)


class LogBrowser:
    """A view of a stretch of a topic's log; at the log's end it follows new events."""

    def __init__(self, link: DashboardLink, topic: str) -> None:
        self._link = link
        self._topic = topic
        self._first: int | None = None
        self._next = 0
        with card("Log"):
            with ui.element("div").classes("tools"):
                self._from = ui.input("offset or time", placeholder="@1042 or 2026-11-27T20:00")
                self._from.props("dense outlined").on("keydown.enter", self._go)
                self._words = ui.input("id or text").props('dense outlined clearable type=search data-filter="1"')
                self._words.on("keydown.enter", self._search)
                for label, act in (
                    ("Search", self._search),
                    ("Earliest", self._earliest),
                    ("Older", self._older),
                    ("Newer", self._newer),
                    ("Latest", self._latest),
                ):
                    ui.button(label, on_click=act).props("outline no-caps dense")
            self._status = ui.label().classes("hint").props("role=status")
            self._rows = RowsTable(COLUMNS, key="offset", label="events", empty="there are no events here")

    async def refresh(self) -> None:
        """Show new events if the view is at the log's end. Raises Away, Refusal."""
        if self._first is None:
            await self._show_latest()

    async def _show_latest(self) -> None:
        earliest, end = self._bounds()
        page = await self._link.read(self._topic, max(earliest, end - ROWS_MAX), ROWS_MAX)
        self._show(list(reversed(page.events)), "the latest events, newest first; new ones appear by themselves")

    async def _latest(self) -> None:
        self._first = None
        self._words.value = ""
        await self._guarded(self._show_latest())

    async def _earliest(self) -> None:
        await self._guarded(self._show_from("earliest"))

    async def _older(self) -> None:
        earliest, end = self._bounds()
        first = (end - ROWS_MAX if self._first is None else self._first) - ROWS_MAX
        await self._guarded(self._show_from(max(earliest, first)))

    async def _newer(self) -> None:
        if self._first is not None:
            await self._guarded(self._show_from(self._next))

    async def _go(self) -> None:
        place = (self._from.value or "").strip().removeprefix("@")
        if not is_place(place):
            notify("write an offset like @1042, or a time like 2026-11-27T20:00:00Z", is_bad=True)
            return
        await self._guarded(self._show_from(int(place) if place.isdecimal() else place))

    async def _show_from(self, start: int | str) -> None:
        page = await self._link.read(self._topic, start, ROWS_MAX)
        if not page.events:
            self._status.set_text(f"no events after {start}; the log ends at @{self._bounds()[1] - 1}")
            self._rows.show([])
            self._first = self._next = page.next
            return
        self._first, self._next = page.events[0].offset, page.next
        self._show(page.events, f"from @{self._first} on, oldest first")

    async def _search(self) -> None:
        words = (self._words.value or "").strip()
        if not words:
            await self._latest()
            return
        place = (self._from.value or "").strip().removeprefix("@")
        await self._guarded(self._show_found(words, place if is_place(place) else None))

    async def _show_found(self, words: str, place: str | None) -> None:
        """Search the log from `place` on, or search the last events if `place` is None."""
        earliest, end = self._bounds()
        at: int | str = place if place is not None else max(earliest, end - SCAN_MAX)
        found: list[StoredEvent] = []
        looked = 0
        while looked < SCAN_MAX and len(found) < ROWS_MAX:
            page = await self._link.read(self._topic, at, SCAN_PAGE)
            if not page.events:
                break
            looked += len(page.events)
            found += [event for event in page.events if matches(event, words)]
            at = page.next
        self._first, self._next = (found[0].offset if found else 0), at if isinstance(at, int) else 0
        shown = found[:ROWS_MAX]
        self._show(shown, f"{len(shown)} found among {number(looked)} events, searched up to @{at}")

    def _show(self, events: list[StoredEvent], status: str) -> None:
        self._status.set_text(status)
        self._rows.show(event_rows(events))

    async def _guarded(self, showing: Any) -> None:
        try:
            await showing
        except (Refusal, Away) as error:
            notify(str(error), is_bad=True)

    def _bounds(self) -> tuple[int, int]:
        report = self._link.latest["topics"].get(self._topic, {"earliest": 0, "next": 0})
        return report["earliest"], report["next"]


def build(link: DashboardLink, topic: str) -> Refresh:
    """Build the page and return the function that updates it."""
    with card():
        summary = ui.label()
        retention = ui.label().classes("mono")
    marks = MarksCard()
    browser = LogBrowser(link, topic)
    documentation = DocumentationPage(link, topic)

    async def refresh() -> None:
        report = link.latest["topics"].get(check_name(topic))
        if report is None:
            summary.set_text("there is no such topic; its first event creates it")
            return
        summary.set_text(
            f"{number(report['next'] - report['earliest'])} events from @{report['earliest']} to before @{report['next']},"
            f" {format_bytes(report['bytes'])}; {len(report['subscriptions'])} subscriptions"
        )
        # Only users who may change the retention may read it.
        if link.is_admin:
            retention.set_text((await link.command(f"retain {topic}")).removeprefix(f"+OK retain {topic} "))
        marks.show(report)
        await browser.refresh()
        await documentation.refresh()

    return refresh
