"""The waiting line of a topic, one lane a priority, shared by all its subscriptions.

A lane is the offsets of one priority in order. A subscription is one position a lane, so publishing costs the same
whoever waits, and the next event is found in the number of priorities. Always true: a lane holds every visible offset
of its priority from its `reach` on; a position keeps meaning the same event when the lane is trimmed or, from the index
files, made longer at its head (which may make positions negative).
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping

__all__ = ["Lane", "Lanes"]

_TRIM_AT = 4096


class Lane:
    """The offsets of one priority, from `reach` on; `trimmed` is the position of the first one."""

    __slots__ = ("offsets", "reach", "trimmed")

    def __init__(self, reach: int) -> None:
        self.offsets: array[int] = array("Q")
        self.reach = reach
        self.trimmed = 0

    @property
    def end(self) -> int:
        """The position behind the last offset."""
        return self.trimmed + len(self.offsets)

    def at(self, position: int) -> int:
        """Return the offset at `position`."""
        return self.offsets[position - self.trimmed]

    def slice(self, position: int, count: int) -> list[int]:
        """Return up to `count` offsets from `position` on."""
        start = position - self.trimmed
        return self.offsets[start : start + count].tolist()

    def position_of(self, offset: int) -> int:
        """Return the position of the first entry ≥ `offset`."""
        return self.trimmed + bisect_left(self.offsets, offset)

    def trim(self, position: int) -> None:
        """Forget what is before `position`, in runs large enough to be worth it."""
        count = position - self.trimmed
        if count >= _TRIM_AT or count == len(self.offsets) > 0:
            self.reach = self.offsets[count - 1] + 1
            del self.offsets[:count]
            self.trimmed = position

    def extend_back(self, older: "array[int]") -> None:
        """Put offsets in front of the first one; what is not older than `reach` is left out."""
        older = older[: bisect_left(older, self.reach)]
        self.offsets = older + self.offsets
        self.trimmed -= len(older)


class Lanes:
    """All lanes of a topic, highest priority first; a lane that is not there yet reaches back to `reach`."""

    def __init__(self, reach: int) -> None:
        self.reach = reach
        self.by_priority: dict[int, Lane] = {}
        self.descending: list[int] = []

    def reaches(self, offset: int) -> bool:
        """Whether every visible event from `offset` on stands in a lane."""
        return self.reach <= offset and all(lane.reach <= offset for lane in self.by_priority.values())

    def extend(self, added: Mapping[int, "array[int]"]) -> None:
        """Put newly visible offsets behind the ones that are there."""
        for priority, offsets in added.items():
            self._lane(priority).offsets.extend(offsets)

    def extend_back(self, first: int, known: Mapping[int, "array[int]"]) -> None:
        """Make all lanes reach back to offset `first`; `known` is what the index files say from there on."""
        for priority, offsets in known.items():
            self._lane(priority).extend_back(offsets)
        for lane in self.by_priority.values():
            lane.reach = min(lane.reach, first)
        self.reach = min(self.reach, first)

    def trim(self, positions: Iterable[Mapping[int, int]]) -> None:
        """Forget what every subscription has passed; each of `positions` maps a priority to a position (0 if missing)."""
        everyone = list(positions)
        for priority, lane in self.by_priority.items():
            passed = min((position.get(priority, 0) for position in everyone), default=lane.end)
            if passed > lane.trimmed:
                lane.trim(passed)

    def _lane(self, priority: int) -> Lane:
        lane = self.by_priority.get(priority)
        if lane is None:
            lane = self.by_priority[priority] = Lane(self.reach)
            self.descending = sorted(self.by_priority, reverse=True)
        return lane
