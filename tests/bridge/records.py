"""Records, events and entries for tests of the bridge."""

from typing import Any

import msgspec
from msgspec import Raw

from bridge.central import Arrival, Record
from tweetwire import StoredEvent

__all__ = ["arrival_of", "record", "stored"]


def record(offset: int, value: bytes | None = b'{"n":1}', timestamp: int = 1_700_000_000_000) -> Record:
    """Return a record whose time grows with its offset."""
    return Record(
        offset,
        timestamp + offset,
        None,
        value,
        ["ce_source", "tweetwire://b/orders", "ce_id", f"e-{offset}", "ce_offset", str(offset)],
    )


def stored(offset: int = 7, msg: Any = None, **members: Any) -> StoredEvent:
    """Return a stored event."""
    raw = Raw(msgspec.json.encode(msg))
    event: dict[str, Any] = {
        "topic": "orders",
        "offset": offset,
        "timestamp": 1_795_818_162_340 + offset,
        "id": f"o-{offset}",
        "priority": 0,
        "msg": raw,
    }
    return StoredEvent(**{**event, **members})


def arrival_of(sent: Record, place: str = "1-0") -> Arrival:
    """Return the entry that an engine makes of a record."""
    fields = dict(zip(sent.fields[::2], sent.fields[1::2], strict=True))
    return Arrival(place, sent.timestamp, sent.key, sent.value, fields)
