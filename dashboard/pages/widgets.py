"""Tables, charts and figures that send the browser only changes."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from nicegui import ui

from dashboard.figures.charts import lines

__all__ = ["Chart", "Choice", "Column", "RowsTable", "ask_first", "card", "notify"]

Kind = Literal["text", "number", "link", "state", "mono"]
Column = tuple[str, str, Kind] | tuple[str, str, Kind, bool]
"""Name, label, kind, and whether it is hidden on a phone."""

CHART_EVERY_S: Final = 1.9
_SLOTS: Final = {
    "link": '<q-td :props="props"><a :href="props.row.href">{{ props.value }}</a></q-td>',
    "state": "<q-td :props=\"props\"><span :class=\"'badge badge-' + String(props.value).replaceAll(' ', '-')\">"
    "{{ props.value }}</span></q-td>",
}


@contextmanager
def card(title: str = "", classes: str = "") -> Iterator[ui.element]:
    """Frame a group of elements."""
    with ui.element("section").classes(f"card {classes}") as section:
        if title:
            with ui.element("h2"):
                ui.label(title)
        yield section


class RowsTable:
    """A table; without rows it shows a text instead."""

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        key: str,
        empty: str,
        label: str,
        on_select: Callable[[], None] | None = None,
    ) -> None:
        self._empty = ui.label(empty).classes("hint")
        self.table = ui.table(
            rows=[],
            columns=[_column(*column) for column in columns],
            row_key=key,
            selection="multiple" if on_select else None,
            on_select=(lambda _: on_select()) if on_select else None,
        )
        self.table.props(f'flat dense wrap-cells aria-label="{label}"').classes("rows")
        for name, _, kind, *_ in columns:
            if kind in _SLOTS:
                self.table.add_slot(f"body-cell-{name}", _SLOTS[kind])
        self.table.set_visibility(False)

    def show(self, rows: list[dict[str, Any]], empty: str | None = None) -> None:
        """Show these rows; `empty` replaces the text that is shown without rows."""
        if rows != self.table.rows:
            self.table.rows = rows
        if empty is not None:
            self._empty.set_text(empty)
        self._empty.set_visibility(not rows)
        self.table.set_visibility(bool(rows))

    @property
    def selected(self) -> list[dict[str, Any]]:
        """The selected rows that are still in the table."""
        there = {row[self.table.row_key]: row for row in self.table.rows}
        return [there[row[self.table.row_key]] for row in self.table.selected if row[self.table.row_key] in there]


class Chart:
    """A chart that is redrawn at most every two seconds; without data it shows a text instead."""

    def __init__(self, label: str, *, empty: str = "nothing to draw yet", classes: str = "") -> None:
        self._empty = ui.label(empty).classes("hint")
        self._chart = ui.echart(lines({})).classes(f"chart {classes}").props(f'role=img aria-label="{label}"')
        self._chart.set_visibility(False)
        self._drawn_at = 0.0

    def say(self, empty: str) -> None:
        """Set the text that is shown without data."""
        self._empty.set_text(empty)

    def show(self, options: dict[str, Any], *, at_once: bool = False) -> None:
        """Draw the chart of `options`."""
        has_data = any(one.get("data") for one in options["series"])
        self._empty.set_visibility(not has_data)
        self._chart.set_visibility(has_data)
        now = time.monotonic()
        if has_data and options != self._chart.options and (at_once or now - self._drawn_at >= CHART_EVERY_S):
            self._drawn_at = now
            self._chart.options.clear()
            self._chart.options.update(options)
            self._chart.update()


class Choice:
    """A list to choose one value from, or all."""

    ALL: Final = "all"

    def __init__(self, label: str, on_change: Callable[[], None]) -> None:
        self._select = ui.select([self.ALL], value=self.ALL, label=label, on_change=lambda _: on_change())
        self._select.props("dense outlined options-dense").classes("choice")

    @property
    def value(self) -> str | None:
        """The chosen value, None for all."""
        chosen: str = self._select.value
        return None if chosen == self.ALL else chosen

    def offer(self, values: set[str]) -> None:
        """Set the values to choose from."""
        options = [self.ALL, *sorted(values if self.value is None else values | {self.value})]
        if options != self._select.options:
            self._select.set_options(options, value=self._select.value)


async def ask_first(question: str, yes: str) -> bool:
    """Ask the user to confirm an action, and return the answer."""
    with ui.dialog() as dialog, ui.card():
        ui.label(question)
        with ui.row():
            ui.button(yes, on_click=lambda: dialog.submit(True)).props("unelevated no-caps autofocus")
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
    is_wanted = await dialog
    dialog.delete()
    return bool(is_wanted)


def notify(text: str, *, is_bad: bool = False) -> None:
    """Show the result of an action."""
    ui.notify(text, type="negative" if is_bad else "positive", position="top", timeout=6000)


def _column(name: str, label: str, kind: Kind, is_wide: bool = False) -> dict[str, Any]:
    classes = " ".join(filter(None, (kind, "wide" if is_wide else "")))
    column: dict[str, Any] = {
        "name": name,
        "label": label,
        "field": name,
        "align": "right" if kind == "number" else "left",
        "sortable": True,
        "classes": classes,
        "headerClasses": classes,
    }
    if kind == "number":
        column[":format"] = "value => typeof value === 'number' ? value.toLocaleString('en') : value"
    return column
