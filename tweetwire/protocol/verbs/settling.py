"""The verbs for delivered and dead events: ``begin``, ``ack``, ``nack``, ``extend`` and ``redrive``."""

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta, Struct

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name, topic_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.reasons import REASON_BYTES_MAX
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import OFFSET_MAX, WrongUsage, ref_of, split_first_word, text_of, whole_number, words_of

__all__ = ["SETTLING_VERBS", "Ack", "Begin", "Extend", "Nack", "Redrive"]

# Integers, because bytes.__contains__ finds an integer five times faster than a bytes object.
_AT: Final = ord("@")
_COMMA: Final = ord(",")
_TAB: Final = ord("\t")
_NACK_WORDS_MIN: Final = 2
RATE_MAX: Final = 1_000_000


class Ack(Command, gc=False):
    """``ack <topic> <ref>…``: settle events in flight.

    If all refs are offsets, `offsets` holds them and `refs` is empty. Otherwise `offsets` is None, and `refs` holds
    offsets as integers and ids as text.
    """

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    offsets: list[int] | None
    refs: list[int | str]


class Begin(Command, gc=False):
    """``begin <topic> <ref>…``: the client works on these events from now on. The members are those of `Ack`."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    offsets: list[int] | None
    refs: list[int | str]


class Nack(Command):
    """``nack <topic> <ref> [<error>]``: give an event back; the error is a text of the consumer."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    ref: int | str
    message: str | None = None
    code: str | int | None = None
    trace: str | None = None


class Extend(Command):
    """``extend <topic> <ref>…``: restart the ack timer of events in flight."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    refs: list[int | str]


class Redrive(Command):
    """``redrive <topic> as=<subscription> <ref>…|all [rate=<n>/s]``: deliver dead events again.

    `refs` is None for all dead events. `rate` is in events a second.
    """

    permission: ClassVar = Permission.REDRIVE
    topic: str
    name: str
    refs: list[int | str] | None
    rate: int


class _Words(Struct, forbid_unknown_fields=True):
    message: str | None = None
    code: str | int | None = None
    trace: str | None = None


_decode_offsets = msgspec.json.Decoder(
    Annotated[list[Annotated[int, Meta(ge=0, le=OFFSET_MAX)]], Meta(min_length=1)]
).decode


def _ack(rest: bytes) -> Ack:
    return Ack(*_topic_and_refs(rest))


def _begin(rest: bytes) -> Begin:
    return Begin(*_topic_and_refs(rest))


def _topic_and_refs(rest: bytes) -> tuple[str, list[int] | None, list[int | str]]:
    topic, _, refs = rest.partition(b" ")
    if not refs or _TAB in topic:
        topic, refs = split_first_word(rest)
    refs = refs.strip()
    if not refs:
        raise WrongUsage
    return topic_name(topic), *_refs(refs)


def _refs(text: bytes) -> tuple[list[int] | None, list[int | str]]:
    """Return (offsets, []) if all refs are offsets, else (None, refs).

    A list of offsets is read by the JSON decoder, in C.
    """
    if text[0] == _AT and text.count(b" ") == text.count(b" @") and _COMMA not in text:
        try:
            return _decode_offsets(b"[%b]" % text[1:].replace(b" @", b",")), []
        except msgspec.MsgspecError:
            pass
    refs = [ref_of(word) for word in text_of(text).split()]
    offsets = [ref for ref in refs if isinstance(ref, int)]
    return (offsets, []) if len(offsets) == len(refs) else (None, refs)


def _nack(rest: bytes) -> Nack:
    words = text_of(rest).split(None, 2)
    if len(words) < _NACK_WORDS_MIN:
        raise WrongUsage
    topic, ref, *error = words
    return Nack(check_name(topic), ref_of(ref), *_error(error[0].strip() if error else ""))


def _error(text: str) -> tuple[str | None, str | int | None, str | None]:
    """Read the error of a ``nack``, a JSON string or object, as (message, code, trace)."""
    if not text:
        return None, None, None
    if len(text.encode()) > REASON_BYTES_MAX:
        raise Refusal("bad_arguments", f"the error is longer than {REASON_BYTES_MAX} bytes")
    try:
        words = msgspec.json.decode(text, type=str | _Words)
    except msgspec.MsgspecError as error:
        raise Refusal(
            "bad_json", f"the error is not a JSON string or an object of message, code, trace: {error}"
        ) from None
    return (words, None, None) if isinstance(words, str) else (words.message, words.code, words.trace)


def _extend(rest: bytes) -> Extend:
    topic, *refs = words_of(rest, 2)
    return Extend(check_name(topic), [ref_of(ref) for ref in refs])


def _redrive(rest: bytes) -> Redrive:
    topic, *words = words_of(rest, 3)
    options = Options([word for word in words if word.startswith(("as=", "rate="))])
    refs = [word for word in words if not word.startswith(("as=", "rate="))]
    name, rate = options.text("as"), options.text("rate")
    if name is None or not refs:
        raise WrongUsage
    number = whole_number((rate or "1000/s").removesuffix("/s"), RATE_MAX)
    if not number:
        raise Refusal("bad_arguments", f"rate is events a second from 1 to {RATE_MAX}, written 50/s")
    return Redrive(
        check_name(topic),
        check_name(name),
        None if refs == ["all"] else [ref_of(ref) for ref in refs],
        number,
    )


SETTLING_VERBS: Final = (
    Verb(
        name="begin",
        parse=_begin,
        commands=(Begin,),
        usage="begin <topic> <ref>...",
        summary="reports that this client works on these events from now on; for a subscription with begins",
    ),
    Verb(
        name="ack",
        long_name="acknowledge",
        parse=_ack,
        commands=(Ack,),
        usage="ack <topic> <ref>...",
        summary="settles events; a ref is an id, or an offset written @1042",
    ),
    Verb(
        name="nack",
        long_name="reject",
        parse=_nack,
        commands=(Nack,),
        usage="nack <topic> <ref> [<error>]",
        summary='gives an event back; the error is "text" or {"message":,"code":,"trace":}',
    ),
    Verb(
        name="extend",
        parse=_extend,
        commands=(Extend,),
        usage="extend <topic> <ref>...",
        summary="restarts the ack timer of events in flight",
    ),
    Verb(
        name="redrive",
        parse=_redrive,
        commands=(Redrive,),
        usage="redrive <topic> as=<subscription> <ref>...|all [rate=1000/s]",
        summary="delivers dead events to their subscription again",
    ),
)
