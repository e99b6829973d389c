"""The ids of a consumer's events in flight, for commands that name an event by its id instead of its offset."""

import heapq
from collections.abc import Container, Sized
from typing import Final, Protocol

from tweetwire.protocol.event_lines import line_id

__all__ = ["InFlightIds"]

_SPARE: Final = 1024


class InFlight(Container[int], Sized, Protocol):
    """The offsets in flight."""


class InFlightIds:
    """The ids of events in flight, with a heap of offsets for each id.

    A lookup drops the settled offsets that it finds. `trim` drops all settled offsets once they are the majority.
    """

    __slots__ = ("_in_flight", "_noted", "_offsets")

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._offsets: dict[str, list[int]] = {}
        self._noted = 0

    def note_lines(self, offsets: list[int], lines: list[bytes]) -> None:
        """Store the ids in event lines."""
        for offset, line in zip(offsets, lines, strict=True):
            heapq.heappush(self._offsets.setdefault(line_id(line), []), offset)
        self._noted += len(offsets)

    def note_ids(self, ids: list[tuple[int, str]]) -> None:
        """Store (offset, id) pairs that a thread has read, without those that are no longer in flight."""
        for offset, id_ in ids:
            if offset in self._in_flight:
                heapq.heappush(self._offsets.setdefault(id_, []), offset)
        self._noted += len(ids)

    def oldest_with(self, id_: str) -> int | None:
        """Return the lowest offset in flight whose event has an id, None if there is no such event."""
        known = self._offsets.get(id_, [])
        # Settled offsets are dropped here, so that many events with one id cost no more than others.
        while known and known[0] not in self._in_flight:
            heapq.heappop(known)
        return known[0] if known else None

    def trim(self) -> None:
        """Forget settled offsets, once they are the majority."""
        if self._noted <= 2 * len(self._in_flight) + _SPARE:
            return
        # A sorted list is a heap.
        kept = {
            id_: sorted({one for one in offsets if one in self._in_flight}) for id_, offsets in self._offsets.items()
        }
        self._offsets = {id_: offsets for id_, offsets in kept.items() if offsets}
        self._noted = sum(map(len, self._offsets.values()))
