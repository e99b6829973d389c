"""The columns of an event's state, and the list of its failed tries."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from dashboard.figures.dead_letters import failure_rows

__all__ = ["STANDING_COLUMNS", "show_failures"]

STANDING_COLUMNS: Final = (
    ("event", "event", "link"),
    ("state", "state", "state"),
    ("why", "detail", "text"),
    ("tries", "failed tries", "text", True),
    ("last", "last failure", "text", True),
)


def show_failures(errors: Sequence[Mapping[str, Any]]) -> None:
    """Show the failed tries, each with the consumer's message."""
    for row in failure_rows(errors):
        with ui.element("article").classes("failure"):
            code = f" [{row['code']}]" if row["code"] else ""
            ui.label(f"try {row['number']}: {row['cause']}{code} · {row['client']} · {row['at']}").classes("hint")
            if row["message"]:
                ui.label(row["message"]).classes("message")
            if row["trace"]:
                ui.label(row["trace"]).classes("trace").props('tabindex=0 aria-label="trace"')
