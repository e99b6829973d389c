"""The verbs that document a topic: ``describe``, ``schema`` and ``comment``."""

from typing import ClassVar, Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import WrongUsage, text_of

__all__ = ["DOCUMENTING_VERBS", "Comment", "Describe", "Documentation", "Schema", "SetSchema"]

DESCRIPTION_BYTES_MAX: Final = 16 << 10
COMMENT_BYTES_MAX: Final = 4 << 10
SCHEMA_BYTES_MAX: Final = 64 << 10


class Describe(Command):
    """``describe <topic> <text>``: set the description of a topic."""

    permission: ClassVar = Permission.PUBLISH
    topic: str
    text: str


class Documentation(Command):
    """``describe <topic>``: show the description, schema and comments of a topic."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str


class SetSchema(Command):
    """``schema <topic> <json schema>|none``: set the schema of a topic, or remove it if `schema` is None."""

    permission: ClassVar = Permission.MANAGE
    topic: str
    schema: str | None


class Schema(Command):
    """``schema <topic>``: show the schema of a topic."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str


class Comment(Command):
    """``comment <topic> <text>``: add a remark to a topic."""

    permission: ClassVar = Permission.PUBLISH
    topic: str
    text: str


def _describe(rest: bytes) -> Describe | Documentation:
    topic, text = _topic_and_text(rest, DESCRIPTION_BYTES_MAX)
    return Describe(topic, text) if text else Documentation(topic)


def _schema(rest: bytes) -> SetSchema | Schema:
    topic, text = _topic_and_text(rest, SCHEMA_BYTES_MAX)
    if not text:
        return Schema(topic)
    return SetSchema(topic, None if text == "none" else text)


def _comment(rest: bytes) -> Comment:
    topic, text = _topic_and_text(rest, COMMENT_BYTES_MAX)
    if not text:
        raise WrongUsage
    return Comment(topic, text)


def _topic_and_text(rest: bytes, bytes_max: int) -> tuple[str, str]:
    topic, *more = text_of(rest).split(None, 1) or ("",)
    if not topic:
        raise WrongUsage
    text = more[0].strip() if more else ""
    if len(text.encode()) > bytes_max:
        raise Refusal("bad_arguments", f"the text is longer than {bytes_max} bytes")
    return check_name(topic), text


DOCUMENTING_VERBS: Final = (
    Verb(
        name="describe",
        parse=_describe,
        commands=(Describe, Documentation),
        usage="describe <topic> [<text>]",
        summary="sets the description of a topic; without a text, shows the whole documentation of the topic, as JSON",
    ),
    Verb(
        name="schema",
        parse=_schema,
        commands=(SetSchema, Schema),
        usage="schema <topic> [<json schema>|none]",
        summary="sets the JSON Schema (draft 2020-12) for the msg of every later event; without a schema, shows it",
    ),
    Verb(
        name="comment",
        parse=_comment,
        commands=(Comment,),
        usage="comment <topic> <text>",
        summary="adds a remark to a topic",
    ),
)
