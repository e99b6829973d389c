"""The events of a topic that are not due yet, shared by its subscriptions, and the topics that have such events.

An event with a due time enters the schedule at its commit. It is *released* from the schedule when it is due by the system's
clock and a consumer asks for it. Always true:

- a scheduled event is visible, so it is in a lane; no subscription has delivered it since the broker's start;
- a released event never returns to the schedule, so a clock that is set back delays no event twice;
- a subscription whose position has passed a scheduled event lets it wait again when it is released, see `Backlog.release`.

An event takes 17 bytes in blocks that are sorted by offset, and a number in a heap that is sorted by due time.
"""

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.timing import TimedEvent

__all__ = ["SCHEDULED_MAX", "Agenda", "Schedule"]

SCHEDULED_MAX: Final = 5_000_000
"""The most events of all topics that may wait for their due times, since they take about 80 bytes of memory each."""

_BLOCK: Final = 4096
_OFFSET_BITS: Final = 63
_PRIORITY_BITS: Final = 8
_OFFSETS: Final = (1 << _OFFSET_BITS) - 1
_PRIORITIES: Final = (1 << _PRIORITY_BITS) - 1
_WIDE: Final = 8
"""If the range of some offsets is longer than this many times their number, they are looked up one by one."""


class Agenda:
    """The topics with scheduled events, and the number of these events in all topics."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.count = 0

    def check_room(self) -> None:
        """Raise Refusal ``too_many`` if no more events may be scheduled."""
        if self.count >= SCHEDULED_MAX:
            raise Refusal("too_many", f"{SCHEDULED_MAX:,} events wait for their due times; publish this one later")


class _Block:
    """Up to `_BLOCK` scheduled events, in the order of their offsets."""

    __slots__ = ("dues", "offsets", "priorities")

    def __init__(self) -> None:
        self.offsets: array[int] = array("Q")
        self.dues: array[int] = array("Q")
        self.priorities = bytearray()

    def place_of(self, offset: int) -> int | None:
        """Return the place of an event in the block, None if it is not there."""
        at = bisect_left(self.offsets, offset)
        return at if at < len(self.offsets) and self.offsets[at] == offset else None

    def distinct(self) -> set[int]:
        """Return each priority once."""
        first = self.priorities[0]
        return {first} if self.priorities.count(first) == len(self.priorities) else set(self.priorities)

    def cut(self, first: int, next_: int) -> None:
        """Remove the events from place `first` up to place `next_`."""
        del self.offsets[first:next_], self.dues[first:next_], self.priorities[first:next_]


class Schedule:
    """The scheduled events of the topic `name`. Dates are in milliseconds, by the system's clock."""

    def __init__(self, name: str = "", agenda: Agenda | None = None) -> None:
        self.name = name
        # The offsets from the first event with an expiry to the last one, empty if there is none
        self.expiring = range(0)
        self._agenda = Agenda() if agenda is None else agenda
        self._blocks: list[_Block] = []
        self._firsts: list[int] = []
        self._count = 0
        # Each number has a due time in its high bits, then an offset, then a priority. Events that were removed may remain.
        self._heap: list[int] = []
        # (offset, due, priority) of events that are accepted and not visible
        self._pending: list[tuple[int, int, int]] = []
        # Whether there are scheduled or expiring events, so that deliveries must look for them
        self.is_used = False

    def __len__(self) -> int:
        return self._count

    def __contains__(self, offset: int) -> bool:
        return self.due_of(offset) is not None

    # Changes

    def check_room(self) -> None:
        """Raise Refusal ``too_many`` if no more events may be scheduled."""
        self._agenda.check_room()

    def note_event(self, event: TimedEvent, date_ms: int) -> None:
        """Note an event that was accepted at `date_ms` and has got its offset. It is scheduled once it is visible."""
        assert isinstance(event.offset, int) and isinstance(event.priority, int)  # noqa: PT018, S101 — see `place`
        if isinstance(event.expires, int):
            self.expiring = range(self.expiring.start if self.expiring else event.offset, event.offset + 1)
            self.is_used = True
        if isinstance(event.due, int) and event.due > date_ms:
            self._pending.append((event.offset, event.due, event.priority))
            self._agenda.count += 1
            self.is_used = True

    def commit(self, visible: int) -> None:
        """Schedule the accepted events below offset `visible`."""
        if not self._pending:
            return
        count = bisect_left(self._pending, (visible,))
        for offset, due_ms, priority in self._pending[:count]:
            self._append(offset, due_ms, priority)
            heapq.heappush(self._heap, _key(due_ms, offset, priority))
        self._agenda.topics.add(self.name)
        del self._pending[:count]

    def fall_back(self) -> None:
        """Forget the accepted events that are not visible, since they were not stored."""
        self._agenda.count -= len(self._pending)
        self._pending.clear()

    def release(self, date_ms: int, count: int) -> list[tuple[int, int]]:
        """Remove up to `count` events that are due at `date_ms`, and return their (offset, priority)."""
        released: list[tuple[int, int]] = []
        end = _key(date_ms + 1, 0, 0)
        while self._heap and self._heap[0] < end and len(released) < count:
            key = heapq.heappop(self._heap)
            offset = key >> _PRIORITY_BITS & _OFFSETS
            if self._remove(offset):
                released.append((offset, key & _PRIORITIES))
        if not self._count:
            self._end()
        return released

    def drop_below(self, offset: int) -> None:
        """Remove the events below an offset, which the topic has lost."""
        if self.expiring and self.expiring.start < offset:
            self.expiring = range(offset, self.expiring.stop)
        passed = bisect_right(self._firsts, offset) - 1
        if passed > 0:
            self._forget(sum(len(block.offsets) for block in self._blocks[:passed]))
            del self._blocks[:passed], self._firsts[:passed]
        if self._blocks and self._firsts[0] < offset:
            self._cut(0, 0, bisect_left(self._blocks[0].offsets, offset))
        if not self._count:
            self._end()
        elif len(self._heap) > 2 * self._count + _BLOCK:
            self._make_heap()

    def forget(self) -> None:
        """Forget all events of a dropped topic."""
        self.fall_back()
        self._forget(self._count)
        self._end()

    def restore(self, events: Iterator[tuple[int, int, int]], expiring: range) -> None:
        """Schedule events (offset, due, priority) that are given in the order of their offsets."""
        for offset, due_ms, priority in events:
            self._append(offset, due_ms, priority)
        self._agenda.count += self._count
        self.expiring = expiring
        self.is_used = bool(expiring) or self._count > 0
        if self._count:
            self._agenda.topics.add(self.name)
            self._make_heap()

    def _append(self, offset: int, due_ms: int, priority: int) -> None:
        if not self._blocks or len(self._blocks[-1].offsets) >= _BLOCK:
            self._blocks.append(_Block())
            self._firsts.append(offset)
        block = self._blocks[-1]
        block.offsets.append(offset)
        block.dues.append(due_ms)
        block.priorities.append(priority)
        self._count += 1

    def _remove(self, offset: int) -> bool:
        number = self._block_of(offset)
        place = self._blocks[number].place_of(offset) if number >= 0 else None
        if place is not None:
            self._cut(number, place, place + 1)
        return place is not None

    def _cut(self, number: int, first: int, next_: int) -> None:
        block = self._blocks[number]
        block.cut(first, next_)
        self._forget(next_ - first)
        if not block.offsets:
            del self._blocks[number], self._firsts[number]
        elif first == 0:
            self._firsts[number] = block.offsets[0]

    def _forget(self, count: int) -> None:
        self._count -= count
        self._agenda.count -= count

    def _end(self) -> None:
        self._blocks, self._firsts, self._heap = [], [], []
        self.is_used = bool(self.expiring or self._pending)
        if not self._pending:
            self._agenda.topics.discard(self.name)

    def _make_heap(self) -> None:
        self._heap = [_key(due_ms, offset, priority) for offset, due_ms, priority in self.events()]
        heapq.heapify(self._heap)

    # Questions

    def is_due(self, date_ms: int) -> bool:
        """Whether an event may be released at `date_ms`."""
        return bool(self._heap) and self._heap[0] < _key(date_ms + 1, 0, 0)

    def counts_before(self, due_ms: int) -> Iterator[int]:
        """Yield the number of events that are due before `due_ms`, in parts."""
        for block in list(self._blocks):
            yield sum(due < due_ms for due in block.dues)

    def due_of(self, offset: int) -> int | None:
        """Return the due time of a scheduled event, None for other events."""
        number = self._block_of(offset)
        place = self._blocks[number].place_of(offset) if number >= 0 else None
        return None if place is None else self._blocks[number].dues[place]

    def events(self) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, due, priority) of all scheduled events, by offset."""
        for block in self._blocks:
            yield from zip(block.offsets, block.dues, block.priorities, strict=True)

    def columns(self) -> tuple[bytes, bytes, bytes]:
        """Return the offsets, the due times and the priorities of all events, as bytes of 8, 8 and 1 for each event."""
        offsets, dues = array("Q"), array("Q")
        for block in self._blocks:
            offsets += block.offsets
            dues += block.dues
        return offsets.tobytes(), dues.tobytes(), b"".join(block.priorities for block in self._blocks)

    def lowest(self, start: int, count: int) -> list[int]:
        """Return the lowest `count` scheduled offsets from `start` on, in order."""
        found: list[int] = []
        for block in self._blocks[max(0, self._block_of(start)) :]:
            at = bisect_left(block.offsets, start)
            found += block.offsets[at : at + count - len(found)]
            if len(found) >= count:
                break
        return found

    def among(self, offsets: Sequence[int]) -> set[int]:
        """Return the scheduled events among `offsets`, which are in order."""
        if not self._count or not offsets or offsets[-1] < self._firsts[0]:
            return set()
        first, last = offsets[0], offsets[-1]
        if last - first > _WIDE * len(offsets):
            return {offset for offset in offsets if offset in self}
        found: set[int] = set()
        for block in self._blocks[max(0, self._block_of(first)) : self._block_of(last) + 1]:
            found.update(block.offsets[bisect_left(block.offsets, first) : bisect_right(block.offsets, last)])
        return found.intersection(offsets)

    def count_from(self, start: int) -> int:
        """Return how many events from offset `start` on are scheduled."""
        return self._count - sum(bisect_left(b.offsets, start) for b in self._blocks[: self._block_of(start) + 1])

    def passed(self, start: int, heads: Mapping[int, int]) -> Counter[int]:
        """Count by priority the scheduled events that a subscription has passed.

        The subscription began at offset `start`. `heads` has its next offset in each lane where events are left.
        """
        counts: Counter[int] = Counter()
        for block in self._blocks:
            for priority in block.distinct():
                end = bisect_left(block.offsets, heads[priority]) if priority in heads else len(block.offsets)
                counts[priority] += block.priorities.count(priority, bisect_left(block.offsets, start), end)
        return +counts

    def passed_offsets(self, start: int, heads: Mapping[int, int]) -> list[int]:
        """Return the offsets of the events that `passed` counts."""
        return [
            offset
            for offset, _, priority in self.events()
            if offset >= start and (priority not in heads or offset < heads[priority])
        ]

    def _block_of(self, offset: int) -> int:
        return bisect_right(self._firsts, offset) - 1


def _key(due_ms: int, offset: int, priority: int) -> int:
    return due_ms << _OFFSET_BITS + _PRIORITY_BITS | offset << _PRIORITY_BITS | priority
