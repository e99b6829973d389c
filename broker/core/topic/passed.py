"""The events that the positions of a backlog have passed although they are not due.

Always true: they are in the topic's schedule, at or after the subscription's start and before the next event of their lane. So
only their numbers are kept here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from broker.core.topic import slots
from broker.core.topic.lanes import Lanes
from broker.core.topic.slots import Taken

__all__ = ["Passed"]

_LOOKED_AT: Final = 1000


class Passed:
    """The numbers of these events by priority."""

    __slots__ = ("_lanes", "by_priority")

    def __init__(self, lanes: Lanes) -> None:
        self.by_priority: Counter[int] = Counter()
        self._lanes = lanes

    @property
    def count(self) -> int:
        """How many events were passed and are not due."""
        return self.by_priority.total()

    def pass_heads(self, positions: dict[int, int], count: int) -> int:
        """Pass the events at `positions` that are not due. Return how many: about `count` at most."""
        passed, schedule = 0, self._lanes.schedule
        for priority, lane in self._lanes.by_priority.items():
            position = positions.get(priority, 0)
            while passed < count and position < lane.end and lane.at(position) in schedule:
                chunk = lane.slice(position, _LOOKED_AT)
                scheduled = schedule.among(chunk)
                leading = next((at for at, offset in enumerate(chunk) if offset not in scheduled), len(chunk))
                position += leading
                passed += leading
                self.by_priority[priority] += leading
            positions[priority] = position
        return passed

    def pass_taken(self, taken: Iterable[Taken]) -> tuple[list[Taken], int]:
        """Pass those of `taken` that are not due. Return the others, and how many were passed."""
        kept: list[Taken] = []
        passed = 0
        for slot, run in taken:
            scheduled = self._lanes.schedule.among(run)
            if not scheduled:
                kept.append(Taken(slot, run))
                continue
            kept += (Taken(slot + at, [offset]) for at, offset in enumerate(run) if offset not in scheduled)
            self.by_priority[slots.priority_of(slot)] += len(scheduled)
            passed += len(scheduled)
        return kept, passed

    def release(self, due: Iterable[tuple[int, int]], start: int, heads: Mapping[int, int]) -> Mapping[int, list[int]]:
        """Return by priority the events of `due`, (offset, priority), that were passed. They no longer count as passed.

        The subscription began at offset `start`. `heads` has its next offset in each lane where events are left.
        """
        released: defaultdict[int, list[int]] = defaultdict(list)
        for offset, priority in due:
            if offset >= start and (priority not in heads or offset < heads[priority]):
                released[priority].append(offset)
        for priority, offsets in released.items():
            self.by_priority[priority] -= len(offsets)
        return released

    def count_again(self, start: int, heads: Mapping[int, int]) -> None:
        """Count the passed events again, after the schedule or the positions have changed."""
        self.by_priority = self._lanes.schedule.passed(start, heads)
