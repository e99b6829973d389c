"""Show tables, events and replies on a terminal, in colour if the terminal has colours.

Events and replies contain text of other clients. A terminal would execute control characters in it, so these are shown as
escape sequences.

Importing rich takes half of the time in which a command starts. So each function imports it when it is called: ``--help`` and
``--json`` do not need it.
"""

# ruff: noqa: PLC0415

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from tweetwire.protocol.events import StoredEvent, decode_stored
from tweetwire.runtime.wording import iso_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = ["event_line", "event_text", "event_writer", "print_json", "printable", "reply_text", "table", "terminal"]

_WIDTH_OF_FILES: Final = 240
# C0, DEL and C1 controls, line and paragraph separators, and the characters that change the direction of text.
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_SIGN_STYLES: Final = {"-": "bold red", "!": "bold yellow"}
_EXTRAS: Final = ("key", "parent", "headers", "producer", "sequence", "checkpoint")


def terminal() -> "Console":
    """Return the console for stdout. If stdout is not a terminal, lines are up to `_WIDTH_OF_FILES` characters wide."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)


def print_json(value: Any) -> None:
    """Write a value to stdout as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def printable(text: str) -> str:
    """Return `text` with its control characters replaced by escape sequences."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, whole: Sequence[str] = ()
) -> "Table":
    """Return a table. Columns of numbers are aligned to the right; true and false are shown as yes and no.

    The cells of the columns `whole` are never broken into several lines; the other columns become narrower instead.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    filled = [list(row) for row in rows]
    made = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, show_edge=False, header_style="bold")
    for at, column in enumerate(columns):
        is_number = any(isinstance(row[at], int) and not isinstance(row[at], bool) for row in filled)
        made.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=column in whole)
    for row in filled:
        made.add_row(*(Text(printable(_cell(value))) for value in row))
    return made


def event_text(line: bytes, *, names_topic: bool = False) -> "Text":
    """Return a stored event as text: offset, time, attempt, priority, id, payload, then its other members.

    If `names_topic` is set, the topic comes first.
    The attempt is left out for the first one, and the priority if it is 0.
    """
    from rich.text import Text

    event = decode_stored(line)
    text = Text()
    if names_topic:
        text.append(f"{printable(event.topic)} ", "green")
    text.append(f"@{event.offset} ", "cyan")
    text.append(f"{iso_time(event.timestamp)} ", "dim")
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


def event_line(event: StoredEvent) -> bytes:
    """Return an event as the broker delivers it, in one line of JSON."""
    members = {name: getattr(event, name) for name in event.__struct_fields__}
    marks = {
        **({"suspect": True} if members.pop("is_suspect") else {}),
        **({"try": event.attempt} if members.pop("attempt") > 1 else {}),
    }
    return msgspec.json.encode(marks | {name: value for name, value in members.items() if value is not UNSET})


def event_writer(*, is_json: bool, names_topic: bool = False) -> Callable[[bytes], None]:
    """Return a function that writes a stored event to stdout: as the line that it is, or as text."""
    if is_json:
        return lambda line: print(line.decode())
    console = terminal()
    return lambda line: console.print(event_text(line, names_topic=names_topic), soft_wrap=True)


def reply_text(line: str) -> "Text":
    """Return a reply (``+`` or ``-``) or a notice (``!``) as text, with a colour for each of them."""
    from rich.text import Text

    sign, _, rest = line.partition(" ")
    text = Text().append(printable(sign), _SIGN_STYLES.get(line[:1], "bold green"))
    return text.append(" ").append_text(_json_text(rest)) if rest else text


def _extras(event: StoredEvent) -> Iterable[tuple[str, str]]:
    for name in _EXTRAS:
        value = getattr(event, name)
        if value is not UNSET:
            yield name, value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _json_text(text: str) -> "Text":
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    made = Text(printable(text))
    JSONHighlighter().highlight(made)
    return made


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
