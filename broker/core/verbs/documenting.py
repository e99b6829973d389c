"""Documenting: a topic's description, schema and comments."""

from typing import Final

import msgspec

from broker.core.desk import Desk
from broker.core.internal_topics import BROKER_TOPICS
from broker.core.session import Session
from broker.core.steps import Outcome, Steps
from broker.core.topic.documentation import Documentation
from broker.core.topic.schemas import Schema
from broker.core.verbs.handler import Handlers
from broker.journal.records import CommentRecord, DescriptionRecord, DocumentationChange, SchemaRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs import documenting as commands

__all__ = ["Documenting"]

BYTES_MAX: Final = 32 << 20
"""The most bytes of the documentation of all topics together, since the answer to ``topics`` holds all of it."""


class Documenting:
    """Changes and shows the documentation of topics. A change is confirmed once it is on the disk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        # The size of the documentation of all topics, None until it is first needed
        self._bytes: int | None = None
        self.handlers: Handlers = {
            commands.Describe: self.describe,
            commands.Documentation: self.show_documentation,
            commands.SetSchema: self.set_schema,
            commands.Schema: self.show_schema,
            commands.Comment: self.comment,
        }

    def describe(self, session: Session, command: commands.Describe, now_ms: int) -> None:
        """Set a topic's description."""
        self._change(session, DescriptionRecord(command.topic, command.text), "describe")

    def comment(self, session: Session, command: commands.Comment, now_ms: int) -> None:
        """Add a comment to a topic."""
        at = self._desk.dates.of(now_ms)
        self._change(session, CommentRecord(command.topic, at, session.name, command.text), "comment")

    def set_schema(self, session: Session, command: commands.SetSchema, now_ms: int) -> None:
        """Check later events against a schema. The broker's own topics have none, since its events must not be refused."""
        if command.topic in BROKER_TOPICS:
            raise Refusal("forbidden", f"{command.topic} is written by the broker itself")
        if command.schema is None:
            self._change(session, SchemaRecord(command.topic, None), "schema")
        else:
            self._desk.begin_job(session, self._prepare_schema(session, command.topic, command.schema))

    def show_documentation(self, session: Session, command: commands.Documentation, now_ms: int) -> None:
        """Reply with a topic's documentation."""
        report = self._desk.topics.find(command.topic).documentation.report()
        self._desk.reply(session, f"+OK describe {command.topic} {msgspec.json.encode(report).decode()}")

    def show_schema(self, session: Session, command: commands.Schema, now_ms: int) -> None:
        """Reply with a topic's schema."""
        schema = self._desk.topics.find(command.topic).documentation.schema
        self._desk.reply(session, f"+OK schema {command.topic} {'none' if schema is None else schema.text}")

    def _prepare_schema(self, session: Session, topic: str, text: str) -> Steps[Outcome]:
        """Compile a schema in a thread, since that may take some tenths of a second, and then set it."""
        schema: Schema = yield lambda _: Schema(text)
        return lambda: self._change(session, SchemaRecord(topic, text), "schema", schema)

    def _change(self, session: Session, change: DocumentationChange, verb: str, schema: Schema | None = None) -> None:
        self._desk.topics.check_room()
        documentation = self._desk.topics.find_or_make(change.topic).documentation
        total = self._total()
        added = len(change.schema or "") if isinstance(change, SchemaRecord) else len(change.text)
        if added and total + added > BYTES_MAX:
            raise Refusal(
                "too_many", f"descriptions, schemas and comments of all topics have {BYTES_MAX >> 20} MiB already"
            )
        before = documentation.size
        if schema is None:
            documentation.apply(change)
        else:
            documentation.schema = schema
        self._bytes = total + documentation.size - before
        self._desk.reply_when_kept(session, change, f"+OK {verb} {change.topic}")

    def note_dropped(self, documentation: Documentation) -> None:
        """Forget the documentation of a dropped topic."""
        self._bytes = self._total() - documentation.size

    def _total(self) -> int:
        if self._bytes is None:
            self._bytes = sum(topic.documentation.size for topic in self._desk.topics)
        return self._bytes
