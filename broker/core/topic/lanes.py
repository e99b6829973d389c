"""The offsets of a topic by priority, one lane for each, shared by all its subscriptions.

A lane has the offsets of one priority in order. A subscription is one position in each lane. So the cost of publishing does not
depend on the number of subscriptions, and finding the next event takes one step per priority. Always true:

- a lane holds every visible offset of its priority from its `reach` on;
- a position always means the same event, also after the lane is trimmed, or extended at its head from the index files. An
  extension may make positions negative.

The newest offsets are kept as numbers, since they are read most. Older offsets are kept as stretches. A stretch is a range of
offsets with the priority of each, in one byte per event. All lanes share the stretches, so ten million unread events take ten
megabytes.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from broker.core.topic.schedule import Schedule
from broker.log import Stretch

__all__ = ["Lane", "Lanes"]

_TRIM_AT: Final = 4096
_FEW: Final = 8


class Lane:
    """The offsets of one priority, from offset `reach` on."""

    __slots__ = ("_open", "_open_at", "_open_from", "_positions", "_stretches", "priority", "reach")

    def __init__(self, priority: int, reach: int) -> None:
        self.priority = priority
        self.reach = reach
        # The stretches that have offsets of this lane, and the position of each stretch's first offset
        self._stretches: list[Stretch] = []
        self._positions: list[int] = []
        # The newest offsets as numbers, from `_open_from` on, and the position of the first
        self._open: array[int] = array("Q")
        self._open_from = reach
        self._open_at = 0

    @property
    def trimmed(self) -> int:
        """The position of the first offset."""
        return self._positions[0] if self._positions else self._open_at

    @property
    def end(self) -> int:
        """The position after the last offset."""
        return self._open_at + len(self._open)

    def at(self, position: int) -> int:
        """Return the offset at `position`."""
        if position >= self._open_at:
            return self._open[position - self._open_at]
        number = bisect_right(self._positions, position) - 1
        return self._stretches[number].offsets(self.priority)[position - self._positions[number]]

    def slice(self, position: int, count: int) -> list[int]:
        """Return up to `count` offsets from `position` on."""
        found: list[int] = []
        while position < self._open_at and len(found) < count:
            number = bisect_right(self._positions, position) - 1
            start = position - self._positions[number]
            found += self._stretches[number].offsets(self.priority)[start : start + count - len(found)]
            position = self._positions[number + 1] if number + 1 < len(self._positions) else self._open_at
        if len(found) == count:
            return found
        start = max(position, self._open_at) - self._open_at
        more = self._open[start : start + count - len(found)].tolist()
        return found + more if found else more

    def position_of(self, offset: int) -> int:
        """Return the position of the lane's first offset that is at least `offset`."""
        number = bisect_right(self._stretches, offset, key=_first) - 1
        if number >= 0 and offset < self._stretches[number].next:
            return self._positions[number] + self._stretches[number].count_before(offset, self.priority)
        if number + 1 < len(self._positions):
            return self._positions[number + 1]
        return self._open_at + bisect_left(self._open, offset)

    def extend(self, offsets: "array[int]") -> None:
        """Add newly visible offsets at the end."""
        self._open.extend(offsets)

    def pack(self, stretches: Iterable[Stretch]) -> None:
        """Store the oldest offsets that are kept as numbers as `stretches`, after the lane's other stretches."""
        for stretch in stretches:
            kept = stretch.cut(self._open_from, stretch.next)
            self._open_from = max(self._open_from, stretch.next)
            count = kept.priorities.count(self.priority)
            if count:
                self._stretches.append(kept)
                self._positions.append(self._open_at)
                self._open_at += count
                del self._open[:count]

    def trim(self, position: int) -> None:
        """Forget the offsets before `position`. Remove many of them together, since each removal costs time."""
        passed = bisect_right(self._positions, position) - (position < self._open_at)
        if passed > 0:
            self.reach = self._stretches[passed - 1].next
            del self._stretches[:passed], self._positions[:passed]
        count = position - self._open_at
        if count >= _TRIM_AT or count == len(self._open) > 0:
            self.reach = self._open_from = self._open[count - 1] + 1
            del self._open[:count]
            self._open_at = position

    def extend_back(self, older: Iterable[Stretch]) -> None:
        """Add stretches before the first offset; their part from `reach` on is already there."""
        cut = [stretch.cut(0, self.reach) for stretch in older if stretch.first < self.reach]
        counts = [stretch.priorities.count(self.priority) for stretch in cut]
        position = self.trimmed - sum(counts)
        held: list[Stretch] = []
        positions: list[int] = []
        for stretch, count in zip(cut, counts, strict=True):
            if count:
                held.append(stretch)
                positions.append(position)
                position += count
        self._stretches[:0] = held
        self._positions[:0] = positions


class Lanes:
    """All lanes of a topic. A lane without an event yet begins at offset `reach`."""

    def __init__(
        self, reach: int, schedule: Schedule | None = None, *, open_max: int = 1 << 19, stretch: int = 1 << 14
    ) -> None:
        """Make lanes that keep up to `open_max` offsets as numbers, and the others in stretches of up to `stretch` events."""
        self.reach = reach
        # The events in the lanes that are not due yet
        self.schedule = Schedule() if schedule is None else schedule
        self.by_priority: dict[int, Lane] = {}
        self.descending: list[int] = []
        # The priorities of the newest events, which are not in stretches yet, in the order of offsets
        self._newest = bytearray()
        self._newest_first = reach
        self._open_max = open_max
        self._stretch = stretch

    def reaches(self, offset: int) -> bool:
        """Whether every visible event from `offset` on is in a lane."""
        return self.reach <= offset and all(lane.reach <= offset for lane in self.by_priority.values())

    def extend(self, added: Stretch) -> None:
        """Add newly visible events at the ends of their lanes."""
        for priority, offsets in added.by_priority().items():
            self._lane(priority).extend(offsets)
        self._newest += added.priorities
        if len(self._newest) > self._open_max:
            self._pack(len(self._newest) - self._open_max // 2)

    def extend_back(self, first: int, known: Iterable[Stretch]) -> None:
        """Extend all lanes back to offset `first`. `known` has the priorities from there on, from the index files."""
        parts = [part for stretch in known for part in stretch.parts(self._stretch)]
        for priority in set().union(*(_distinct(part.priorities) for part in parts)):
            self._lane(priority)
        for lane in self.by_priority.values():
            lane.extend_back(parts)
            lane.reach = min(lane.reach, first)
        self.reach = min(self.reach, first)

    def trim(self, positions: Iterable[Mapping[int, int]]) -> None:
        """Forget the offsets that every subscription has passed.

        Each of `positions` has a subscription's position by priority, 0 if it is missing.
        """
        everyone = list(positions)
        for priority, lane in self.by_priority.items():
            passed = min((position.get(priority, 0) for position in everyone), default=lane.end)
            if passed > lane.trimmed:
                lane.trim(passed)

    def _pack(self, count: int) -> None:
        packed = Stretch(self._newest_first, bytes(self._newest[:count]))
        parts = list(packed.parts(self._stretch))
        for lane in self.by_priority.values():
            lane.pack(parts)
        del self._newest[:count]
        self._newest_first = packed.next

    def _lane(self, priority: int) -> Lane:
        lane = self.by_priority.get(priority)
        if lane is None:
            lane = self.by_priority[priority] = Lane(priority, self.reach)
            self.descending = sorted(self.by_priority, reverse=True)
        return lane


def _distinct(priorities: bytes) -> set[int]:
    """Return each value in `priorities` once. Most topics have few values, so removing them one after the other is fast."""
    found: set[int] = set()
    while priorities and len(found) < _FEW:
        found.add(priorities[0])
        priorities = priorities.translate(None, priorities[:1])
    return found.union(priorities)


def _first(stretch: Stretch) -> int:
    return stretch.first
