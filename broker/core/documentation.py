"""What people and programs are told of a topic: what it is for, what its events hold, and what was remarked."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from broker.core.dead_letters import DEAD_LETTERS, REJECTED_LINES
from broker.core.schemas import Schema
from broker.core.session import Session
from broker.errors import Refusal
from broker.protocol import commands
from broker.state import CommentRecord, DescriptionRecord, DocumentationChange, SchemaRecord

if TYPE_CHECKING:
    from broker.core.broker import Broker

__all__ = ["Documentation", "Documents"]

COMMENTS_MAX: Final = 100


class Documentation:
    """What documents one topic; the newest `COMMENTS_MAX` comments are kept."""

    def __init__(self) -> None:
        self.description: str | None = None
        self.schema: Schema | None = None
        self.comments: deque[CommentRecord] = deque(maxlen=COMMENTS_MAX)

    def apply(self, change: DocumentationChange) -> None:
        """Take a change. Raises Refusal for what is no schema."""
        match change:
            case DescriptionRecord():
                self.description = change.text
            case SchemaRecord():
                self.schema = None if change.schema is None else Schema(change.schema)
            case CommentRecord():
                self.comments.append(change)

    def records(self, topic: str) -> Iterator[DocumentationChange]:
        """Yield what must be kept of it."""
        if self.description is not None:
            yield DescriptionRecord(topic, self.description)
        if self.schema is not None:
            yield SchemaRecord(topic, self.schema.text)
        yield from self.comments

    def report(self) -> dict[str, Any]:
        """Return what there is, as JSON has it; what is missing is left out."""
        report: dict[str, Any] = {}
        if self.description is not None:
            report["description"] = self.description
        if self.schema is not None:
            report["schema"] = Raw(self.schema.text.encode())
        if self.comments:
            report["comments"] = [{"at": one.at, "client": one.client, "text": one.text} for one in self.comments]
        return report


class Documents:
    """Carries out the commands that document topics; each change is answered when the disk has it."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def describe(self, session: Session, command: commands.Describe, now_ms: int) -> None:
        """Say what a topic is for."""
        self._change(session, DescriptionRecord(command.topic, command.text), "describe")

    def comment(self, session: Session, command: commands.Comment, now_ms: int) -> None:
        """Add a remark."""
        self._change(session, CommentRecord(command.topic, now_ms, session.name, command.text), "comment")

    def set_schema(self, session: Session, command: commands.SetSchema, now_ms: int) -> None:
        """Have later events checked; what the broker itself writes must never be refused."""
        if command.topic in {DEAD_LETTERS, REJECTED_LINES}:
            raise Refusal("forbidden", f"{command.topic} is written by the broker itself")
        self._change(session, SchemaRecord(command.topic, command.schema), "schema")

    def show(self, session: Session, command: commands.Documentation, now_ms: int) -> None:
        """Show all that documents a topic."""
        self._broker.reply(session, f"+OK describe {command.topic} {_json(self._of(command.topic).report())}")

    def show_schema(self, session: Session, command: commands.Schema, now_ms: int) -> None:
        """Show the schema alone."""
        schema = self._of(command.topic).schema
        self._broker.reply(session, f"+OK schema {command.topic} {'none' if schema is None else schema.text}")

    def _change(self, session: Session, change: DocumentationChange, verb: str) -> None:
        self._broker.topic(change.topic).documentation.apply(change)
        self._broker.reply_when_kept(session, change, f"+OK {verb} {change.topic}")

    def _of(self, topic: str) -> Documentation:
        if topic not in self._broker.topics:
            raise Refusal("unknown_topic", topic)
        return self._broker.topics[topic].documentation


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
