"""The verbs of the exactly-once handshakes: ``pub2`` and ``pubrel``, ``pubrec`` and ``pubcomp``."""

from typing import ClassVar, Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.event_lines import EVENT_EXAMPLE, parse_typed_event
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.names import check_name, topic_name
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import WrongUsage, ref_of, split_first_word, words_of

__all__ = ["EXACTLY_ONCE_VERBS", "Pub2", "Pubcomp", "Pubrec", "Pubrel"]


class Pub2(Command):
    """``pub2 <topic> <event>``: hold an event until ``pubrel`` releases it."""

    permission: ClassVar = Permission.PUBLISH
    topic: str
    event: IncomingEvent


class Pubrel(Command):
    """``pubrel <topic> <id>``: store a held event."""

    permission: ClassVar = Permission.PUBLISH
    topic: str
    id: str


class Pubrec(Command):
    """``pubrec <topic> <ref>``: the client has the event on its disk. `word` is the ref as it was sent."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    ref: int | str
    word: str


class Pubcomp(Command):
    """``pubcomp <topic> <ref>``: end the handshake of an event. `word` is the ref as it was sent."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    ref: int | str
    word: str


def _pub2(rest: bytes) -> Pub2:
    word, raw = split_first_word(rest)
    if not raw:
        raise WrongUsage
    topic = topic_name(word)
    event = parse_typed_event("pub2", topic, raw)
    if event.id.split() != [event.id]:
        raise Refusal("bad_event", "an id for pub2 is one word, with no white space")
    return Pub2(topic, event)


def _pubrel(rest: bytes) -> Pubrel:
    topic, id_ = words_of(rest, 2, 2)
    return Pubrel(check_name(topic), id_)


def _pubrec(rest: bytes) -> Pubrec:
    topic, ref = words_of(rest, 2, 2)
    return Pubrec(check_name(topic), ref_of(ref), ref)


def _pubcomp(rest: bytes) -> Pubcomp:
    topic, ref = words_of(rest, 2, 2)
    return Pubcomp(check_name(topic), ref_of(ref), ref)


EXACTLY_ONCE_VERBS: Final = (
    Verb(
        name="pub2",
        parse=_pub2,
        commands=(Pub2,),
        usage="pub2 <topic> [delay=5m|at=<time>] [expires=10m|<time>] <event>",
        example=f"pub2 <topic> {EVENT_EXAMPLE}",
        summary="holds an event for exactly-once publishing; answers +REC, and pubrel releases the event",
    ),
    Verb(
        name="pubrel",
        parse=_pubrel,
        commands=(Pubrel,),
        usage="pubrel <topic> <id>",
        summary="stores a held event; answers +COMP with its offset, each time it is repeated",
    ),
    Verb(
        name="pubrec",
        parse=_pubrec,
        commands=(Pubrec,),
        usage="pubrec <topic> <ref>",
        summary="reports that this client has an event of a qos=2 subscription on its disk; answers +REL",
    ),
    Verb(
        name="pubcomp",
        parse=_pubcomp,
        commands=(Pubcomp,),
        usage="pubcomp <topic> <ref>",
        summary="ends the handshake of an event that this client has taken with pubrec",
    ),
)
