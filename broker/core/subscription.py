"""A named reader of one topic.

Always true: each visible event from the subscription's start on is exactly one of waiting (in a lane behind the
position, or in `returned`), in flight with one consumer, or settled. Published = waiting + in flight + settled.
"""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.core import slots
from broker.core.lanes import Lanes
from broker.state import SettledRecord, SubscriptionRecord

if TYPE_CHECKING:
    from broker.core.consumer import Consumer

__all__ = ["Subscription", "Taken"]

PriorityOf: TypeAlias = Callable[[int], int]


class Taken(NamedTuple):
    """Neighbours in a lane: their offsets, the first one's slot being `slot`."""

    slot: int
    offsets: list[int]


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
        # (-priority, offset, slot): the order in which what came back is given again
        self._returned: list[tuple[int, int, int]] = []
        self._strays = 0
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

    def take(self, count: int) -> list[Taken]:
        """Take up to `count` waiting events, highest priority first, by offset within a priority."""
        taken: list[Taken] = []
        for priority in self._lanes.descending:
            if count == 0:
                return taken
            count -= self._take_lane(priority, count, taken)
        while self._returned and count > 0:
            taken.append(self._pop_returned())
            count -= 1
        return taken

    def give_back(self, in_flight: Mapping[int, int]) -> None:
        """Let events ({offset: slot}) wait again, at the place that their priority and offset give them."""
        for offset, slot in in_flight.items():
            heapq.heappush(self._returned, (-slots.priority_of(slot), offset, slot))

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
        unsettled = sorted({offset for _, offset, _ in self._returned}.union(*(c.in_flight for c in self.consumers)))
        tries = self.failed_tries
        return SubscriptionRecord(
            self.topic, self.name, visible, floors, [(offset, tries.get(offset, 0)) for offset in unsettled]
        )

    def settled_record(self, settled: Mapping[int, int]) -> SettledRecord:
        """Return what must be kept of settling events ({offset: slot})."""
        by_slot = {slot: offset for offset, slot in settled.items()}
        runs: dict[int, list[tuple[int, int]]] = {}
        for first, last in slots.runs(sorted(by_slot)):
            runs.setdefault(slots.priority_of(first), []).append((by_slot[first], by_slot[last]))
        return SettledRecord(self.topic, self.name, runs)

    def restore(self, record: SubscriptionRecord, settled: list[SettledRecord], priority_of: PriorityOf) -> None:
        """Stand where `record` and what was settled since then say; the lanes reach back to its lowest floor."""
        runs: dict[int, list[tuple[int, int]]] = {}
        for one in settled:
            for priority, some in one.runs.items():
                runs.setdefault(priority, []).extend(some)
        for priority, lane in self._lanes.by_priority.items():
            position = lane.position_of(record.floors.get(priority, record.start))
            for first, last in sorted(runs.get(priority, ())):
                begin, end = lane.position_of(first), lane.position_of(last + 1)
                if begin > position:
                    self._reopen(lane.slice(position, begin - position), priority)
                position = max(position, end)
            self.positions[priority] = position
        for offset, tries in record.open:
            priority = priority_of(offset)
            if not any(first <= offset <= last for first, last in runs.get(priority, ())):
                self._reopen([offset], priority)
                if tries:
                    self.failed_tries[offset] = tries

    def _reopen(self, offsets: list[int], priority: int) -> None:
        """Let events wait again whose slots are not known any more."""
        for offset in offsets:
            self._strays += 1
            self.give_back({offset: slots.stray_slot(priority, self._strays)})

    def _take_lane(self, priority: int, count: int, taken: list[Taken]) -> int:
        """Take from one lane, mixed with what came back of the same or a higher priority; returns how many."""
        lane = self._lanes.by_priority[priority]
        position = self.positions.get(priority, 0)
        returned = self._returned
        left = count
        while left:
            if returned and (position >= lane.end or returned[0][:2] < (-priority, lane.at(position))):
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
            taken.append(Taken(slots.first_slot(priority, position), chunk))
            position += len(chunk)
            left -= len(chunk)
        self.positions[priority] = position
        return count - left

    def _pop_returned(self) -> Taken:
        _, offset, slot = heapq.heappop(self._returned)
        return Taken(slot, [offset])
