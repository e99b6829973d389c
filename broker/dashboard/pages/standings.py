"""How an event stands, as columns, and what failed with it, as a list of tries."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from broker.dashboard.figures.dead_letters import failure_rows

__all__ = ["STANDING_COLUMNS", "show_failures"]

STANDING_COLUMNS: Final = (
    ("event", "event", "link"),
    ("state", "state", "state"),
    ("why", "where it is", "text"),
    ("tries", "failed tries", "text", True),
    ("last", "last failure", "text", True),
)


def show_failures(errors: Sequence[Mapping[str, Any]]) -> None:
    """Show the failed tries, each with the consumer's own words."""
    for row in failure_rows(errors):
        with ui.element("article").classes("failure"):
            code = f" [{row['code']}]" if row["code"] else ""
            ui.label(f"try {row['number']}: {row['cause']}{code} · {row['client']} · {row['at']}").classes("hint")
            if row["message"]:
                ui.label(row["message"]).classes("message")
            if row["trace"]:
                ui.label(row["trace"]).classes("trace").props('tabindex=0 aria-label="trace"')
