"""An event: as a publisher makes it, and as the broker stores, delivers and reads it."""

from typing import Annotated, Any, TypeVar, overload

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

__all__ = ["Event", "IncomingEvent", "StoredEvent", "decode_stored", "encode_event"]

T = TypeVar("T")


class Event(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """What a publisher sends; `msg` is anything msgspec can encode as JSON.

    `id` has 1–256 characters and need not be unique. `priority` is 0–255, higher goes out first. `key` groups the events
    of one entity, `parent` is the id of the event that caused this one, `headers` pass through. `producer` and `sequence`
    (≥ 0) make publishing idempotent, and `checkpoint` is stored with them in the same write.
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


_Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,127}\Z")]


class IncomingEvent(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An event as the broker takes it in; `msg` stays the bytes that came.

    The first three members are its place, which the broker fills in; with them it encodes as the line that is stored.
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
    """An event with its place in a topic's log.

    `offset` counts from 0 in its topic, `timestamp` is the broker's clock in milliseconds since 1970 UTC, and `attempt`
    counts the deliveries to one subscription (1 the first time; ``"try"`` on the wire).
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
    attempt: int = msgspec.field(name="try", default=1)

    @overload
    def decode(self) -> Any: ...
    @overload
    def decode(self, as_type: type[T]) -> T: ...
    def decode(self, as_type: Any = Any) -> Any:
        """Decode `msg`, validated as `as_type`. Raises msgspec.ValidationError where it does not fit."""
        return msgspec.json.decode(self.msg, type=as_type)


# A number is looked for in a fifth of the time that bytes take.
_LINE_FEED = ord("\n")

_encode = msgspec.json.Encoder().encode
decode_stored = msgspec.json.Decoder(StoredEvent).decode


def encode_event(event: Event | IncomingEvent) -> bytes:
    """Encode an event as JSON in one line. Raises msgspec.DecodeError, a ValueError, for a `Raw` message that is no JSON."""
    line = _encode(event)
    # Only such a message can bring line feeds, and behind one the broker would read a command.
    return line if _LINE_FEED not in line else msgspec.json.format(line, indent=-1)
