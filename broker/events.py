"""An event: as a publisher makes it, and as the broker stores, delivers and reads it."""

from typing import Any, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

__all__ = ["Event", "RawEvent", "StoredEvent", "decode_stored", "encode_event"]

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


class RawEvent(Event, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An `Event` as the broker takes it in: `msg` stays the bytes that came."""

    msg: Raw


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


encode_event = msgspec.json.Encoder().encode
decode_stored = msgspec.json.Decoder(StoredEvent).decode
