"""The documentation of a topic: its description, the schema of its events, and comments."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Raw

from broker.core.topic.schemas import Schema, UnusableSchema
from broker.journal.records import CommentRecord, DescriptionRecord, DocumentationChange, SchemaRecord
from tweetwire.protocol.errors import Refusal

__all__ = ["Documentation"]

COMMENTS_MAX: Final = 100


class Documentation:
    """The documentation of one topic, with the newest `COMMENTS_MAX` comments."""

    def __init__(self) -> None:
        self.description: str | None = None
        self.schema: Schema | UnusableSchema | None = None
        self.comments: deque[CommentRecord] = deque(maxlen=COMMENTS_MAX)

    def apply(self, change: DocumentationChange) -> None:
        """Apply a change. A stored schema that is refused now becomes an `UnusableSchema`, so that the start does not fail."""
        match change:
            case DescriptionRecord():
                self.description = change.text
            case SchemaRecord():
                self.schema = None if change.schema is None else _usable(change.schema)
            case CommentRecord():
                self.comments.append(change)

    @property
    def size(self) -> int:
        """How many characters the documentation has."""
        schema = "" if self.schema is None else self.schema.text
        return len(self.description or "") + len(schema) + sum(len(one.text) for one in self.comments)

    def records(self, topic: str) -> Iterator[DocumentationChange]:
        """Yield the records that keep the documentation."""
        if self.description is not None:
            yield DescriptionRecord(topic, self.description)
        if self.schema is not None:
            yield SchemaRecord(topic, self.schema.text)
        yield from self.comments

    def report(self) -> dict[str, Any]:
        """Return the documentation as members of a JSON object. Missing parts are left out."""
        report: dict[str, Any] = {}
        if self.description is not None:
            report["description"] = self.description
        if self.schema is not None:
            report["schema"] = Raw(self.schema.text.encode())
        if self.comments:
            report["comments"] = [{"at": one.at, "client": one.client, "text": one.text} for one in self.comments]
        return report


def _usable(text: str) -> Schema | UnusableSchema:
    try:
        return Schema(text)
    except Refusal as refusal:
        return UnusableSchema(text, refusal.text)
