"""The dead letters: why each event failed, and a button that redrives it to the subscription that gave up on it."""

from typing import Any, Final

from nicegui import ui

from dashboard.figures.dead_letters import chosen, dead_rows, key_of, redrive_lines, written
from dashboard.link import Away, DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.standings import show_failures
from dashboard.pages.widgets import Choice, RowsTable, ask_first, card, notify
from tweetwire.protocol.errors import Refusal

__all__ = ["build"]

SHOWN_MAX: Final = 500
COLUMNS: Final = (
    ("event", "event", "link"),
    ("subscription", "subscription", "text"),
    ("message", "message", "text"),
    ("cause", "cause", "text", True),
    ("tries", "tries", "number"),
    ("died", "died (UTC)", "text", True),
    ("client", "client", "text", True),
)
_BODY: Final = """
<q-tr :props="props">
  <q-td auto-width><q-checkbox v-model="props.selected" dense :aria-label="'choose ' + props.row.event" /></q-td>
  <q-td v-for="column in props.cols" :key="column.name" :props="props">
    <a v-if="column.name === 'event'" :href="props.row.href">{{ column.value }}</a>
    <a v-else-if="column.name === 'message'" href="#failures" @click.prevent="$parent.$emit('open', props.row.key)">
      {{ column.value || 'why?' }}</a>
    <template v-else>{{ column.value }}</template>
  </q-td>
</q-tr>
"""


class DeadLettersPage:
    """The widgets of the page, and their update."""

    def __init__(self, link: DashboardLink) -> None:
        self._link = link
        self._found: list[Any] = []
        self._shown: list[dict[str, Any]] = []
        self._opened: str | None = None
        with card():
            with ui.element("div").classes("tools"):
                self._topic = Choice("topic", self._filter)
                self._subscription = Choice("subscription", self._filter)
                self._words = ui.input("filter", on_change=lambda _: self._filter())
                self._words.props('dense outlined clearable debounce=200 type=search data-filter="1"')
                self._redrive = ui.button("Redrive", on_click=self._redrive_chosen).props("unelevated no-caps")
                ui.button("Export", on_click=self._export).props("outline no-caps")
            self._rows = RowsTable(
                COLUMNS,
                key="key",
                label="dead letters",
                empty="there are no dead letters",
                on_select=self._name_the_button,
            )
            self._rows.table.add_slot("body", _BODY)
            self._rows.table.on("open", lambda args: self._open(args.args))
        with card("Failed tries", "failures") as self._details:
            self._heading = ui.label().classes("hint")
            self._failures = ui.element("div").props("id=failures")
        self._details.set_visibility(False)
        self._name_the_button()

    async def refresh(self) -> None:
        """Update the page. Raises Away, Refusal."""
        self._found = await self._link.report(f"dead limit={SHOWN_MAX}")
        self._topic.offer({one["topic"] for one in self._found})
        self._subscription.offer({one["subscription"] for one in self._found})
        self._filter()

    def _filter(self) -> None:
        self._shown = chosen(
            dead_rows(self._found),
            topic=self._topic.value,
            subscription=self._subscription.value,
            words=self._words.value or "",
        )
        self._rows.show(self._shown, "no dead letter matches" if self._found else "there are no dead letters")
        self._name_the_button()
        if self._opened is not None and not any(row["key"] == self._opened for row in self._shown):
            self._opened = None
            self._details.set_visibility(False)

    def _name_the_button(self) -> None:
        count = len(self._rows.selected)
        self._redrive.set_text(f"Redrive {count}" if count else "Redrive")
        self._redrive.set_enabled(count > 0 and self._link.is_admin)
        self._redrive.props(f'title="{"redrive the chosen events" if self._link.is_admin else "for administrators"}"')

    def _open(self, key: str) -> None:
        for one in self._found:
            if key_of(one) == key:
                self._opened = key
                self._heading.set_text(f"{one['topic']} @{one['offset']} for {one['subscription']}")
                self._failures.clear()
                with self._failures:
                    show_failures(one["errors"])
                self._details.set_visibility(True)

    async def _redrive_chosen(self) -> None:
        rows = self._rows.selected
        events = "1 event" if len(rows) == 1 else f"{len(rows)} events"
        if not await ask_first(f"Redrive {events} to the subscriptions that gave up on them?", f"Redrive {events}"):
            return
        try:
            replies = [await self._link.command(line) for line in redrive_lines(rows)]
        except (Refusal, Away) as error:
            notify(str(error), is_bad=True)
            return
        count = sum(int(reply.split(" ")[3]) for reply in replies)
        self._rows.table.selected = []
        notify(f"{count} {'goes' if count == 1 else 'go'} out again")
        await self.refresh()

    def _export(self) -> None:
        ui.download.content(written(self._found, self._shown), "dead_letters.jsonl", "application/x-ndjson")


def build(link: DashboardLink) -> Refresh:
    """Build the page and return the function that updates it."""
    return DeadLettersPage(link).refresh
