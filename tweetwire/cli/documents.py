"""``describe``, ``schema`` and ``comment``: a topic's description, the schema of its events, and comments on it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tweetwire.cli.connection import TopicArgument
from tweetwire.cli.display import printable
from tweetwire.cli.flags import Flag, argument
from tweetwire.cli.kinds import FILE, LINE, SWITCH
from tweetwire.cli.report import ReportCommand, answer
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.wording import iso_time

if TYPE_CHECKING:
    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["Comment", "Describe", "Schema"]


class Describe(ReportCommand, kw_only=True):
    """Set the description of a topic, or show its description, schema and comments."""

    examples = ("tweetwire describe orders", "tweetwire describe orders 'one event for each paid order'")

    topic: TopicArgument
    text: Annotated[str | None, argument(LINE, "the new description", default="keep the old one")] = None

    def ask(self, client: "SyncClient") -> Any:
        """Set the description if one is given, and ask for the topic's documents."""
        if self.text is not None:
            client.command(f"describe {self.topic} {self.text}")
        return answer(client.command(f"describe {self.topic}"), 3)

    def show(self, found: Any, console: "Console") -> None:
        """Show the description, the schema and the comments."""
        console.print(printable(found.get("description", "no description")), soft_wrap=True)
        _show_schema(found.get("schema"), console)
        for one in found.get("comments", ()):
            console.print(f"{iso_time(one['at'])} {one['client']}: {printable(one['text'])}", soft_wrap=True)


class Schema(ReportCommand, kw_only=True):
    """Show, set or remove the JSON Schema that a topic's events must match."""

    examples = ("tweetwire schema orders --set orders.json", "tweetwire schema orders --none")

    topic: TopicArgument
    set_: Annotated[Path | None, Flag(FILE, "file with the schema, draft 2020-12 (-: stdin)")] = None
    none: Annotated[bool, Flag(SWITCH, "remove the schema")] = False

    def __post_init__(self) -> None:
        """Raise ValueError if both flags are given."""
        if self.none and self.set_ is not None:
            raise ValueError("--set and --none exclude each other")

    def ask(self, client: "SyncClient") -> Any:
        """Set or remove the schema if a flag says so. Returns the topic's schema, or None if it has no schema."""
        if self.none or self.set_ is not None:
            client.command(f"schema {self.topic} {self._text()}")
        text = client.command(f"schema {self.topic}").split(" ", 3)[3]
        return None if text == "none" else msgspec.json.decode(text)

    def show(self, found: Any, console: "Console") -> None:
        """Show the schema."""
        _show_schema(found, console)

    def _text(self) -> str:
        """Return the new schema on one line, as the command needs it, or ``none``."""
        if self.set_ is None:
            return "none"
        try:
            text = sys.stdin.buffer.read() if str(self.set_) == "-" else self.set_.read_bytes()
            return msgspec.json.format(text, indent=-1).decode()
        except OSError as error:
            raise StartError(f"cannot read the schema from {self.set_}: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StartError(f"cannot read the schema from {self.set_}: {error}") from error


class Comment(ReportCommand, kw_only=True):
    """Add a comment to a topic."""

    examples = ("tweetwire comment orders 'the total is in cents'", "tweetwire comment orders @ann:'who reads this?'")

    topic: TopicArgument
    text: Annotated[str, argument(LINE, "the comment, one line")]

    def ask(self, client: "SyncClient") -> Any:
        """Add the comment."""
        client.command(f"comment {self.topic} {self.text}")
        return {"topic": self.topic, "text": self.text}

    def show(self, found: Any, console: "Console") -> None:
        """Confirm that the comment was added."""
        console.print(f"the comment was added to {found['topic']}")


def _show_schema(schema: Any, console: "Console") -> None:
    if schema is None:
        console.print("no schema")
    else:
        from rich.json import JSON  # noqa: PLC0415 — see the module `display`

        console.print(JSON(msgspec.json.encode(schema).decode(), ensure_ascii=True))
