"""An index of events by a key: their own id, or that of their parent."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = ["Index", "KnownEvent", "known_event"]


class _Head(Struct, gc=False):
    topic: str
    offset: int
    timestamp: int
    id: str
    parent: str | UnsetType = UNSET


class KnownEvent(NamedTuple):
    """The place of an event in the index, and its links."""

    timestamp: int
    topic: str
    offset: int
    id: str
    parent: str | None


_decode_head = msgspec.json.Decoder(_Head).decode


class Index:
    """Events by a key. Nearly all keys have a single event, which is stored without a list."""

    def __init__(self) -> None:
        self._by_name: dict[str, KnownEvent | deque[KnownEvent]] = {}

    def __len__(self) -> int:
        return sum(len(found) if isinstance(found, deque) else 1 for found in self._by_name.values())

    def add(self, name: str, known: KnownEvent) -> None:
        """Add an event that is newer than all others of the index."""
        before = self._by_name.setdefault(name, known)
        if isinstance(before, deque):
            before.append(known)
        elif before is not known:
            self._by_name[name] = deque((before, known))

    def get(self, name: str) -> Sequence[KnownEvent]:
        """Return a copy of the events with a key, the oldest first."""
        found = self._by_name.get(name)
        return () if found is None else tuple(found) if isinstance(found, deque) else (found,)

    def drop_oldest(self, name: str) -> None:
        """Forget the event that was added first under a key."""
        found = self._by_name[name]
        if isinstance(found, deque):
            found.popleft()
        if not isinstance(found, deque) or not found:
            del self._by_name[name]


def known_event(line: bytes) -> KnownEvent:
    """Read the place and the links of an event from its line."""
    head = _decode_head(line)
    return KnownEvent(head.timestamp, head.topic, head.offset, head.id, None if head.parent is UNSET else head.parent)
