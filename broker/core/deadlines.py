"""When what is in flight with one consumer fails for want of a word.

Coarse buckets, so that an event costs a place in a list and no timer: deadlines are rounded up to `STEP_MS`. An event
whose deadline was moved (by ``extend``, or since it was delivered again) is told from its old place by `moved`.
"""

from collections.abc import Container
from typing import Final

__all__ = ["Deadlines"]

STEP_MS: Final = 100
_COMPACT_AT: Final = 4096
_NEVER: Final = 1 << 62


class Deadlines:
    """The deadlines (ms) of one consumer's events in flight, the earliest first."""

    __slots__ = ("_buckets", "_compact_at", "_moved", "_tracked")

    def __init__(self) -> None:
        # A list, since it is short and an empty deque costs 600 bytes for each of thousands of idle consumers.
        self._buckets: list[tuple[int, list[int]]] = []
        self._moved: dict[int, int] = {}
        self._tracked = 0
        self._compact_at = _COMPACT_AT

    @property
    def next(self) -> int | None:
        """The earliest deadline, None where there is none."""
        return self._buckets[0][0] if self._buckets else None

    def add(self, offsets: list[int], at_ms: int, in_flight: Container[int]) -> None:
        """Let events that have just left fail at `at_ms`."""
        at_ms = -(-at_ms // STEP_MS) * STEP_MS
        if self._buckets and self._buckets[-1][0] >= at_ms:
            self._buckets[-1][1].extend(offsets)
        else:
            self._buckets.append((at_ms, list(offsets)))
        self._tracked += len(offsets)
        if self._tracked > self._compact_at:
            self._compact(in_flight)

    def suspend(self, offset: int) -> None:
        """The event is on its way again: its old deadline counts no more, and the new one is not known yet."""
        self._moved[offset] = _NEVER

    def move(self, offset: int, at_ms: int, in_flight: Container[int]) -> None:
        """Let an event that is in flight fail at `at_ms` and not before."""
        self._moved[offset] = at_ms
        self.add([offset], at_ms, in_flight)

    def forget(self, offset: int) -> None:
        """The event is no longer in flight."""
        self._moved.pop(offset, None)

    @property
    def has_moved(self) -> bool:
        """Whether `forget` has anything to do."""
        return bool(self._moved)

    def expired(self, now_ms: int, in_flight: Container[int]) -> list[int]:
        """Take out the events whose time is over."""
        over: list[int] = []
        while self._buckets and self._buckets[0][0] <= now_ms:
            _, offsets = self._buckets.pop(0)
            self._tracked -= len(offsets)
            over += [o for o in offsets if o in in_flight and self._moved.get(o, 0) <= now_ms]
        return list(dict.fromkeys(over))

    def _compact(self, in_flight: Container[int]) -> None:
        """Forget the places of what is settled or has another place by now, of which an event tried again has many."""
        moved = self._moved
        kept = (
            (at, [offset for offset in dict.fromkeys(offsets) if offset in in_flight and moved.get(offset, 0) <= at])
            for at, offsets in self._buckets
        )
        self._buckets = [(at, offsets) for at, offsets in kept if offsets]
        self._tracked = sum(len(offsets) for _, offsets in self._buckets)
        # Only when as much again has come, so that many events in flight do not cost each one a look at all.
        self._compact_at = 2 * self._tracked + _COMPACT_AT
