"""The lines that document a topic: ``describe``, ``schema`` and ``comment``."""

from collections.abc import Callable
from typing import Final

from broker.errors import Refusal
from broker.protocol.commands import Comment, Describe, Documentation, Schema, SetSchema
from broker.protocol.names import check_name
from broker.protocol.words import text_of

__all__ = ["DOCUMENTATION_VERBS"]

DESCRIPTION_BYTES_MAX: Final = 16 << 10
COMMENT_BYTES_MAX: Final = 4 << 10
SCHEMA_BYTES_MAX: Final = 256 << 10


def _describe(rest: bytes) -> Describe | Documentation:
    topic, text = _topic_and_text(rest, "describe <topic> [<text>]", DESCRIPTION_BYTES_MAX)
    return Describe(topic, text) if text else Documentation(topic)


def _schema(rest: bytes) -> SetSchema | Schema:
    topic, text = _topic_and_text(rest, "schema <topic> [<json schema>|none]", SCHEMA_BYTES_MAX)
    if not text:
        return Schema(topic)
    return SetSchema(topic, None if text == "none" else text)


def _comment(rest: bytes) -> Comment:
    usage = "comment <topic> <text>"
    topic, text = _topic_and_text(rest, usage, COMMENT_BYTES_MAX)
    if not text:
        raise Refusal("bad_arguments", f"usage: {usage}")
    return Comment(topic, text)


def _topic_and_text(rest: bytes, usage: str, bytes_max: int) -> tuple[str, str]:
    topic, _, text = text_of(rest).strip().partition(" ")
    if not topic:
        raise Refusal("bad_arguments", f"usage: {usage}")
    text = text.strip()
    if len(text.encode()) > bytes_max:
        raise Refusal("bad_arguments", f"that is longer than {bytes_max} bytes")
    return check_name(topic), text


DOCUMENTATION_VERBS: Final[dict[str, Callable[[bytes], Describe | Documentation | SetSchema | Schema | Comment]]] = {
    "describe": _describe,
    "schema": _schema,
    "comment": _comment,
}
