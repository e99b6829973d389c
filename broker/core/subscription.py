"""A named reader of one topic.

Always true: each visible event from the subscription's start on is exactly one of waiting (in a lane behind the position,
or in `returned`), in flight with one consumer, or settled. Published = waiting + in flight + settled.
"""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from broker.core.lanes import Lanes
from broker.state import SubscriptionRecord

if TYPE_CHECKING:
    from broker.core.consumer import Consumer

__all__ = ["Subscription", "ranges"]

PriorityOf: TypeAlias = Callable[[int], int]


class Subscription:
    """Positions in the lanes of its topic, what came back, and who consumes it."""

    def __init__(self, topic: str, name: str, lanes: Lanes, start: int, *, is_durable: bool) -> None:
        self.topic = topic
        self.name = name
        self.start = start
        self.is_durable = is_durable
        self.consumers: list[Consumer] = []
        self.positions = {p: lane.position_of(start) for p, lane in lanes.by_priority.items()}
        self.failed_tries: dict[int, int] = {}
        self.settled = 0
        self.redelivered = 0
        self._lanes = lanes
        # (-priority, offset): the order in which what came back is given again
        self._returned: list[tuple[int, int]] = []
        self._turn = 0

    @property
    def in_flight(self) -> int:
        """How many events are with consumers."""
        return sum(len(consumer.in_flight) for consumer in self.consumers)

    @property
    def waiting(self) -> int:
        """How many events nobody has."""
        lanes = self._lanes.by_priority.items()
        return len(self._returned) + sum(lane.end - self.positions.get(p, 0) for p, lane in lanes)

    def take(self, count: int) -> list[tuple[int, list[int]]]:
        """Take up to `count` waiting events: runs of (priority, offsets), highest priority first, in order of offset."""
        taken: list[tuple[int, list[int]]] = []
        for priority in self._lanes.descending:
            if count == 0:
                return taken
            count -= self._take_lane(priority, count, taken)
        while self._returned and count > 0:
            taken.append(self._pop_returned())
            count -= 1
        return taken

    def give_back(self, offsets: Mapping[int, int]) -> None:
        """Let events ({offset: priority}) wait again, at the place that their priority and offset give them."""
        for offset, priority in offsets.items():
            heapq.heappush(self._returned, (-priority, offset))

    def next_consumers(self) -> "Iterator[Consumer]":
        """Go round the consumers, beginning with another one each time, so that a share of few events is fair."""
        consumers = self.consumers
        count = len(consumers)
        if count > 1:
            self._turn = (self._turn + 1) % count
            consumers = consumers[self._turn :] + consumers[: self._turn]
        return iter(consumers)

    def record(self, visible: int) -> SubscriptionRecord:
        """Return what must be kept of it when the topic's events below `visible` can be read.

        All of these are settled, save those behind the floors of the lanes that have some waiting, and the open ones.
        """
        floors = {
            p: lane.at(position)
            for p, lane in self._lanes.by_priority.items()
            if (position := self.positions.get(p, 0)) < lane.end
        }
        unsettled = sorted({offset for _, offset in self._returned}.union(*(c.in_flight for c in self.consumers)))
        tries = self.failed_tries
        return SubscriptionRecord(
            self.topic, self.name, visible, floors, [(offset, tries.get(offset, 0)) for offset in unsettled]
        )

    def restore(self, record: SubscriptionRecord, settled: list[tuple[int, int]], priority_of: PriorityOf) -> None:
        """Stand where `record` and the `settled` ranges kept since then say; the lanes reach back to its lowest floor."""
        for priority, lane in self._lanes.by_priority.items():
            position = lane.position_of(record.floors.get(priority, record.start))
            for first, last in sorted(settled):
                begin, end = lane.position_of(first), lane.position_of(last + 1)
                if end > max(begin, position):
                    self.give_back(
                        dict.fromkeys(lane.slice(position, begin - position) if begin > position else (), priority)
                    )
                    position = end
            self.positions[priority] = position
        for offset, tries in record.open:
            if not any(first <= offset <= last for first, last in settled):
                self.give_back({offset: priority_of(offset)})
                self.failed_tries[offset] = tries

    def _take_lane(self, priority: int, count: int, taken: list[tuple[int, list[int]]]) -> int:
        """Take from one lane, mixed with what came back of the same or a higher priority; returns how many."""
        lane = self._lanes.by_priority[priority]
        position = self.positions.get(priority, 0)
        returned = self._returned
        left = count
        while left:
            if returned and (position >= lane.end or returned[0] < (-priority, lane.at(position))):
                if -returned[0][0] < priority:
                    break
                taken.append(self._pop_returned())
                left -= 1
                continue
            chunk = lane.slice(position, left)
            if not chunk:
                break
            if returned and -returned[0][0] == priority:
                chunk = chunk[: bisect_left(chunk, returned[0][1])]
            taken.append((priority, chunk))
            position += len(chunk)
            left -= len(chunk)
        self.positions[priority] = position
        return count - left

    def _pop_returned(self) -> tuple[int, list[int]]:
        negative, offset = heapq.heappop(self._returned)
        return -negative, [offset]


def ranges(offsets: list[int]) -> list[tuple[int, int]]:
    """Return `offsets` as runs (first, last), both included, in order."""
    if not offsets:
        return []
    offsets = sorted(offsets)
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return [(offsets[0], offsets[-1])]
    runs: list[tuple[int, int]] = []
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            runs.append((first, last))
            first = offset
        last = offset
    runs.append((first, last))
    return runs
