"""The key of an event, and the events of one key that are in flight or wait for each other."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct

__all__ = ["FLYING_MAX", "Blocker", "KeyQueue", "Owner", "keys_of"]

FLYING_MAX: Final = 1000
"""How many events of one key may be in flight. All of them are taken back together if the first one fails."""


class Owner(Protocol):
    """A consumer, as far as a queue needs to know it."""

    def take_out(self, offsets: list[int]) -> dict[int, int]:
        """Remove those of `offsets` that are in flight, and return them with their slots."""
        ...


class Blocker(NamedTuple):
    """The earlier event of the same key that a parked event waits for, and whether it is in flight."""

    offset: int
    is_in_flight: bool


class KeyQueue:
    """The events of one key that are in flight or parked.

    `owner` is the consumer that has those in flight, None if there are none. `parked` is a heap of offsets.
    """

    __slots__ = ("flying", "key", "owner", "parked")

    def __init__(self, key: int) -> None:
        self.key = key
        self.owner: Owner | None = None
        self.flying: set[int] = set()
        self.parked: list[int] = []


class _Keyed(Struct, gc=False):
    """The key of an event line."""

    key: str | None = None


_decode = msgspec.json.Decoder(_Keyed).decode


def keys_of(lines: Sequence[bytes]) -> list[int | None]:
    """Return the hashes of the keys of event lines, None for each event without a key.

    Two keys with the same hash count as one key, so their events wait for each other. Only hashes are kept, so a long key takes
    no more memory than a short one.
    """
    try:
        keys = [event.key for event in map(_decode, lines)]
    except (msgspec.MsgspecError, RecursionError):
        keys = list(map(_key_or_none, lines))
    return [None if key is None else hash(key) for key in keys]


def _key_or_none(line: bytes) -> str | None:
    """Return the key of an event line, None if the line cannot be read."""
    try:
        return _decode(line).key
    except (msgspec.MsgspecError, RecursionError):
        return None
