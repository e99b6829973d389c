"""How things look on a terminal: tables, events and replies, in colour where there is one.

What events and replies hold was written by others. Control characters in it would be carried out by the terminal, so
they are shown as escapes.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from broker.events import StoredEvent, decode_stored

__all__ = ["event_text", "print_json", "printable", "reply_text", "table", "terminal", "time_text"]

_WIDTH_OF_FILES: Final = 240
# C0, DEL and C1 controls, and the characters that turn the direction of writing.
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_EXTRAS: Final = ("key", "parent", "headers", "producer", "sequence", "checkpoint")

_json_colours = JSONHighlighter()


def terminal() -> Console:
    """Return the console of stdout; into a file it writes without colour, and as wide as the content needs."""
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)


def print_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def printable(text: str) -> str:
    """Return `text` with its control characters as escapes."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def time_text(time_ms: int) -> str:
    """Write milliseconds since 1970 as ``2026-11-27T20:00:00.123Z``, which the broker reads as a time, too."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table; numbers stand at the right, true and false as yes and no."""
    filled = [list(row) for row in rows]
    made = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, show_edge=False, header_style="bold")
    for at, column in enumerate(columns):
        is_number = any(isinstance(row[at], int) and not isinstance(row[at], bool) for row in filled)
        made.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in filled:
        made.add_row(*(Text(printable(_cell(value))) for value in row))
    return made


def event_text(line: bytes) -> Text:
    """Show a stored event: offset, time, priority where it has one, id, payload, and what else it carries."""
    event = decode_stored(line)
    text = Text()
    text.append(f"@{event.offset} ", "cyan")
    text.append(f"{time_text(event.timestamp)} ", "dim")
    if event.attempt > 1:
        text.append(f"try {event.attempt} ", "bold red")
    if event.priority:
        text.append(f"p{event.priority} ", "yellow")
    text.append(f"{printable(event.id)} ", "bold")
    text.append_text(_json_text(bytes(event.msg).decode()))
    for name, value in _extras(event):
        text.append(f" {name}=", "dim")
        text.append(printable(value), "magenta")
    return text


def reply_text(line: str) -> Text:
    """Show a reply: what went well, or what was refused and why."""
    sign, _, rest = line.partition(" ")
    text = Text().append(printable(sign), "bold red" if line.startswith("-") else "bold green")
    return text.append(" ").append_text(_json_text(rest)) if rest else text


def _extras(event: StoredEvent) -> Iterable[tuple[str, str]]:
    for name in _EXTRAS:
        value = getattr(event, name)
        if value is not UNSET:
            yield name, value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _json_text(text: str) -> Text:
    made = Text(printable(text))
    _json_colours.highlight(made)
    return made


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
