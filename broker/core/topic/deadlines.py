"""The times at which the events in flight with one consumer time out.

The deadlines are rounded up to `STEP_MS` and kept in buckets, so that an event needs an entry in a list instead of a timer.
``extend`` and a redelivery move a deadline; `_moved` then has the new time.
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
        """The earliest deadline, None without events."""
        return self._buckets[0][0] if self._buckets else None

    def add(self, offsets: list[int], at_ms: int, in_flight: Container[int]) -> None:
        """Set the deadline `at_ms` for events that have just been sent."""
        at_ms = -(-at_ms // STEP_MS) * STEP_MS
        if self._buckets and self._buckets[-1][0] >= at_ms:
            self._buckets[-1][1].extend(offsets)
        else:
            self._buckets.append((at_ms, list(offsets)))
        self._tracked += len(offsets)
        if self._tracked > self._compact_at:
            self._compact(in_flight)

    def suspend(self, offset: int) -> None:
        """Drop the old deadline of an event that is being delivered again; its new deadline is not known yet."""
        self._moved[offset] = _NEVER

    def move(self, offset: int, at_ms: int, in_flight: Container[int]) -> None:
        """Move the deadline of an event in flight to `at_ms`."""
        self._moved[offset] = at_ms
        self.add([offset], at_ms, in_flight)

    def forget(self, offset: int) -> None:
        """Forget the moved deadline of an event that is no longer in flight."""
        self._moved.pop(offset, None)

    @property
    def has_moved(self) -> bool:
        """Whether `forget` has an effect."""
        return bool(self._moved)

    def expired(self, now_ms: int, in_flight: Container[int]) -> list[int]:
        """Remove and return the events that have timed out."""
        over: list[int] = []
        while self._buckets and self._buckets[0][0] <= now_ms:
            _, offsets = self._buckets.pop(0)
            self._tracked -= len(offsets)
            over += [o for o in offsets if o in in_flight and self._moved.get(o, 0) <= now_ms]
        return list(dict.fromkeys(over))

    def still_over(self, offsets: list[int], now_ms: int) -> list[int]:
        """Return those offsets from `expired` whose deadline has not been moved beyond `now_ms` since that call."""
        moved = self._moved
        return [offset for offset in offsets if moved.get(offset, 0) <= now_ms] if moved else offsets

    def _compact(self, in_flight: Container[int]) -> None:
        """Forget the entries of events that are settled or have a later deadline.

        An event that is retried leaves many such entries.
        """
        moved = self._moved
        kept = (
            (at, [offset for offset in dict.fromkeys(offsets) if offset in in_flight and moved.get(offset, 0) <= at])
            for at, offsets in self._buckets
        )
        self._buckets = [(at, offsets) for at, offsets in kept if offsets]
        self._tracked = sum(len(offsets) for _, offsets in self._buckets)
        # Compact again only when the number of entries has doubled, so that the cost for each event stays constant.
        self._compact_at = 2 * self._tracked + _COMPACT_AT
