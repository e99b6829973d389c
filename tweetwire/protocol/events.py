"""The three forms of an event: as a publisher makes it, as the broker receives it, and as it is stored."""

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar, overload

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

__all__ = ["Event", "IncomingEvent", "StoredEvent", "decode_stored", "encode_event", "encode_events"]

T = TypeVar("T")


class Event(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An event as a publisher makes it.

    Attributes:
        id: 1–256 characters; several events may have the same id.
        priority: 0–255; a higher one is delivered first.
        msg: Any value that msgspec can encode as JSON.
        key: Groups the events of one entity.
        parent: The id of the event that caused this one.
        headers: Passed through unchanged.
        producer: A name that, together with `sequence`, makes publishing idempotent.
        sequence: A number ≥ 0 that grows with each event of the producer.
        checkpoint: Stored in the same write as the event.
        due: The event is not delivered before this time: an aware datetime, or milliseconds since 1970 UTC.
        delay: The event is not delivered until this long after its arrival at the broker, such as ``5m``.
        expires: The event is not delivered after this time, or after this duration from its arrival.
    """

    id: str
    priority: int = 0
    msg: Any
    key: str | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    producer: str | UnsetType = UNSET
    sequence: int | UnsetType = UNSET
    checkpoint: str | UnsetType = UNSET
    due: int | datetime | UnsetType = UNSET
    delay: str | UnsetType = UNSET
    expires: int | str | datetime | UnsetType = UNSET


_Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,127}\Z")]


class IncomingEvent(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An event as the broker takes it in. `msg` keeps the bytes of the publisher.

    The broker fills in the first three members, the place of the event. Then it encodes as the line that is stored.
    """

    topic: str | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    id: Annotated[str, Meta(min_length=1, max_length=256)]
    priority: Annotated[int, Meta(ge=0, le=255)] | UnsetType = UNSET
    msg: Raw
    key: str | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    producer: _Name | UnsetType = UNSET
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType = UNSET
    checkpoint: str | UnsetType = UNSET


class StoredEvent(Struct, kw_only=True, gc=False):
    """An event as it is stored and delivered. The members that are not listed here are those of `Event`.

    Attributes:
        offset: The place in the topic's log, counted from 0.
        timestamp: The broker's clock at arrival, in milliseconds since 1970 UTC.
        attempt: The number of this delivery to the subscription, counted from 1; ``"try"`` on the wire.
        is_suspect: Whether a consumer was lost while it had this event; ``"suspect"`` on the wire. Only clients that
            promised to send ``begin`` get it.
        due: The event was not delivered before this time, in milliseconds since 1970 UTC.
        expires: The event is not delivered after this time.
    """

    topic: str
    offset: int
    timestamp: int
    id: str
    priority: int
    msg: Raw
    key: str | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    producer: str | UnsetType = UNSET
    sequence: int | UnsetType = UNSET
    checkpoint: str | UnsetType = UNSET
    due: int | UnsetType = UNSET
    expires: int | UnsetType = UNSET
    attempt: int = msgspec.field(name="try", default=1)
    is_suspect: bool = msgspec.field(name="suspect", default=False)

    @overload
    def decode(self) -> Any: ...
    @overload
    def decode(self, as_type: type[T]) -> T: ...
    def decode(self, as_type: Any = Any) -> Any:
        """Decode `msg` and validate it as `as_type`. Raises msgspec.ValidationError if it does not fit."""
        return msgspec.json.decode(self.msg, type=as_type)


# These are integers, because bytes.__contains__ finds an integer five times faster than a bytes object.
_LINE_FEED = ord("\n")

# The first letters of NaN and Infinity, which some writers of JSON produce. A `Raw` message without these letters is not
# examined.
_N, _I = ord("N"), ord("I")

# MessagePack writes a float as 0xCB and eight bytes; the pattern finds floats that are not finite. The first byte is rare
# elsewhere, and UTF-8 text never matches the pattern.
_FLOAT = 0xCB
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")

_PLAIN = frozenset({str, int, bool, type(None)})

# msgspec writes NaN and infinities as null, so a message is examined only if its line contains a null. In a short line,
# bytes.find is twice as fast as bytes.__contains__.
_NULL = b"null"

_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_pack = msgspec.msgpack.Encoder().encode
_see_json = msgspec.json.Decoder(Raw).decode
decode_stored = msgspec.json.Decoder(StoredEvent).decode


def encode_event(event: Event | IncomingEvent) -> bytes:
    """Encode an event as JSON in one line.

    The broker refuses other faults of a `Raw` message, and faults of a `Raw` inside another value.

    Raises:
        ValueError: The message holds NaN or an infinity, which JSON cannot express. Or it is a `Raw` of several lines that
            is not JSON.
    """
    line = _encode(event)
    kind = type(event.msg)
    if kind is Raw:
        if _N in line or _I in line or _LINE_FEED in line:
            _refuse_no_json(event.msg)
    elif kind not in _PLAIN and line.find(_NULL) >= 0:
        _refuse_not_finite([event.msg])
    return line if _LINE_FEED not in line else _in_one_line(line)


def encode_events(events: Sequence[Event | IncomingEvent]) -> list[bytes]:
    """Encode events as `encode_event` does, with one check of all messages. A fault in one event raises for all of them."""
    encoded = _encode_lines(events)
    lines = encoded.split(b"\n")
    lines.pop()
    msgs = [event.msg for event in events]
    kinds = set(map(type, msgs))
    if kinds <= _PLAIN:
        return lines
    if len(lines) != len(events):
        # A line feed inside a `Raw` has cut a line in two.
        return [encode_event(event) for event in events]
    if Raw in kinds and (_N in encoded or _I in encoded):
        for msg, line in zip(msgs, lines, strict=True):
            if type(msg) is Raw and (_N in line or _I in line):
                _refuse_no_json(msg)
    if _NULL in encoded:
        _refuse_not_finite([msg for msg in msgs if type(msg) is not Raw])
    return lines


def _in_one_line(line: bytes) -> bytes:
    # Only `Raw` can contain a line feed, and the broker would read the text after it as a command.
    return msgspec.json.format(line, indent=-1)


def _refuse_no_json(raw: Raw) -> None:
    """Raise ValueError if a `Raw` message is not JSON. Only messages with bytes that are rare in valid JSON are examined."""
    try:
        _see_json(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"msg is Raw, but not JSON: {error}") from error


def _refuse_not_finite(msgs: list[Any]) -> None:
    """Raise ValueError for NaN and infinities, which msgspec would write as ``null``.

    MessagePack can tell these floats from None, and writing it is fast. So only messages that hold such floats, or a value
    that MessagePack cannot express, are walked through.
    """
    try:
        packed = _pack(msgs)
        if _FLOAT not in packed or _NOT_FINITE.search(packed) is None:
            return
    except (OverflowError, TypeError, ValueError):
        pass
    for msg in msgs:
        for place, value in _floats("msg", msgspec.to_builtins(msg, str_keys=True, enc_hook=_nothing)):
            if not math.isfinite(value):
                raise ValueError(f"{place} is {value}, which JSON cannot express")


def _floats(place: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the floats inside a value of builtin types, each with its place."""
    if isinstance(value, float):
        yield place, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _floats(f"{place}.{name}", member)
    elif isinstance(value, list | tuple | set | frozenset):
        for number, member in enumerate(value):
            yield from _floats(f"{place}[{number}]", member)


def _nothing(_: Any) -> None:
    """Return None for values that only JSON can express, such as a `Raw` inside another value; they hold no Python float."""
