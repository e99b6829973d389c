"""A named reader of one topic.

Always true: each visible event from the subscription's start on is exactly one of waiting (in a lane behind the
position, in `returned`, or in `delayed` until its pause is over), in flight with one consumer, dying (its dead letter is
on its way to the disk), dead, or settled.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.core import slots
from broker.core.lanes import Lanes
from broker.failures import Attempts
from broker.protocol.policy import DEFAULT_POLICY, Policy
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
    """Positions in the lanes of its topic, what came back, what died, and who consumes it."""

    __slots__ = (
        *("_delayed", "_lanes", "_returned", "_strays", "_turn", "attempts", "consumers", "dead", "dying"),
        *("is_durable", "name", "overtaken", "policy", "positions", "redelivered", "settled", "start", "topic"),
    )

    def __init__(
        self, topic: str, name: str, lanes: Lanes, start: int, *, is_durable: bool, policy: Policy | None = None
    ) -> None:
        self.topic = topic
        self.name = name
        self.start = start
        self.is_durable = is_durable
        self.policy = policy or DEFAULT_POLICY
        self.consumers: list[Consumer] = []
        self.positions = {p: lane.position_of(start) for p, lane in lanes.by_priority.items()}
        self.attempts: dict[int, Attempts] = {}
        self.dying: dict[int, int] = {}
        self.dead: dict[int, tuple[int, int]] = {}
        self.settled = 0
        self.redelivered = 0
        self.overtaken = 0
        self._lanes = lanes
        # (-priority, offset, slot): the order in which what came back is given again
        self._returned: list[tuple[int, int, int]] = []
        # (due ms, offset, slot)
        self._delayed: list[tuple[int, int, int]] = []
        self._strays = 0
        self._turn = 0

    @property
    def in_flight(self) -> int:
        """How many events are with consumers."""
        return sum(len(consumer.in_flight) for consumer in self.consumers)

    @property
    def waiting(self) -> int:
        """How many events nobody has, those in a pause included."""
        lanes = self._lanes.by_priority.items()
        in_lanes = sum(lane.end - self.positions.get(p, 0) for p, lane in lanes)
        return len(self._returned) + len(self._delayed) + in_lanes

    @property
    def delayed(self) -> int:
        """How many of those waiting have a pause after a failed try."""
        return len(self._delayed)

    @property
    def next_due(self) -> int | None:
        """When (ms) the next pause is over, None where there is none."""
        return self._delayed[0][0] if self._delayed else None

    def take(self, count: int, aged: int = 0) -> list[Taken]:
        """Take up to `count` waiting events, highest priority first, by offset within a priority.

        Those below offset `aged` have waited too long: the oldest of them go before any priority.
        """
        taken: list[Taken] = []
        if aged:
            count -= self._take_aged(count, aged, taken)
        for priority in self._lanes.descending:
            if count == 0:
                return taken
            if self._lanes.by_priority[priority].end > self.positions.get(priority, 0):
                count -= self._take_lane(priority, count, taken)
        while self._returned and count > 0:
            taken.append(self._pop_returned())
            count -= 1
        return taken

    def give_back(self, in_flight: Mapping[int, int]) -> None:
        """Let events ({offset: slot}) wait again, at the place that their priority and offset give them."""
        for offset, slot in in_flight.items():
            heapq.heappush(self._returned, (-slots.priority_of(slot), offset, slot))

    def delay(self, offset: int, slot: int, due_ms: int) -> None:
        """Let an event wait again, not before `due_ms`."""
        heapq.heappush(self._delayed, (due_ms, offset, slot))

    def end_pauses(self, now_ms: int) -> bool:
        """Let those whose pause is over be taken; returns whether there were any."""
        is_any = False
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, offset, slot = heapq.heappop(self._delayed)
            self.give_back({offset: slot})
            is_any = True
        return is_any

    def redrive(self, offset: int) -> None:
        """Let a dead event wait again, with its history and without its strikes."""
        priority, _ = self.dead.pop(offset)
        if offset in self.attempts:
            self.attempts[offset] = self.attempts[offset].forgiven()
        self._reopen([offset], priority)

    def next_consumers(self) -> "Iterator[Consumer]":
        """Go round the consumers, beginning with another one each time, so that a share of few events is fair."""
        consumers = self.consumers
        count = len(consumers)
        if count > 1:
            self._turn = (self._turn + 1) % count
            consumers = consumers[self._turn :] + consumers[: self._turn]
        return iter(consumers)

    def place_of(self, offset: int, priority: int) -> tuple[str, int]:
        """Return where an event is that nobody has in flight, and how many wait before it.

        One of ``waiting``, ``delayed`` (with the time in ms when the pause ends), ``dying``, ``dead`` (with its letter's
        offset), ``settled`` or ``before_start``.
        """
        for due, delayed, _ in self._delayed:
            if delayed == offset:
                return "delayed", due
        if offset in self.dying:
            return "dying", 0
        if offset in self.dead:
            return "dead", self.dead[offset][1]
        if any(returned == offset for _, returned, _ in self._returned) or self._is_ahead(offset, priority):
            return "waiting", self._count_before(offset, priority)
        return ("settled" if offset >= self.start else "before_start"), 0

    def unsettled(self, start: int, count: int) -> list[int]:
        """Return the lowest `count` offsets ≥ `start` that are waiting or in flight, in order."""
        found = {offset for _, offset, _ in (*self._returned, *self._delayed)}
        found = {offset for offset in found.union(*(c.in_flight for c in self.consumers)) if offset >= start}
        for priority, lane in self._lanes.by_priority.items():
            found.update(lane.slice(max(self.positions.get(priority, 0), lane.position_of(start)), count))
        return sorted(found)[:count]

    def waiting_by_priority(self) -> dict[int, int]:
        """Return how many events nobody has, those in a pause included, highest priority first."""
        came_back = Counter(slots.priority_of(slot) for _, _, slot in (*self._returned, *self._delayed))
        waiting = {
            priority: lane.end - self.positions.get(priority, 0) + came_back[priority]
            for priority, lane in self._lanes.by_priority.items()
        }
        return {priority: count for priority, count in sorted({**came_back, **waiting}.items(), reverse=True) if count}

    def oldest(self) -> int | None:
        """Return the lowest offset that is waiting or in flight, None where there is none."""
        heads = (
            lane.at(position)
            for priority, lane in self._lanes.by_priority.items()
            if (position := self.positions.get(priority, 0)) < lane.end
        )
        came_back = (offset for _, offset, _ in (*self._returned, *self._delayed))
        return min(chain(heads, came_back, *(consumer.in_flight for consumer in self.consumers)), default=None)

    def lowest_unsettled(self, visible: int) -> int:
        """Return the lowest offset that it has not settled, dead ones among them, `visible` where there is none."""
        heads = (
            lane.at(position)
            for p, lane in self._lanes.by_priority.items()
            if (position := self.positions.get(p, 0)) < lane.end
        )
        apart = (offset for _, offset, _ in (*self._returned, *self._delayed))
        taken = (offset for consumer in self.consumers for offset in consumer.in_flight)
        return min((visible, *heads, *apart, *taken, *self.dying, *self.dead))

    def overtake(self, earliest: int) -> int:
        """Pass over what waits or is dead below `earliest`, which is no longer there; returns how many events that were.

        What consumers have in flight stays theirs to settle.
        """
        passed = 0
        for priority, lane in self._lanes.by_priority.items():
            position, behind = self.positions.get(priority, 0), lane.position_of(earliest)
            if behind > position:
                passed += behind - position
                self.positions[priority] = behind
        returned = [entry for entry in self._returned if entry[1] >= earliest]
        delayed = [entry for entry in self._delayed if entry[1] >= earliest]
        dead = {offset: where for offset, where in self.dead.items() if offset >= earliest}
        passed += len(self._returned) + len(self._delayed) + len(self.dead) - len(returned) - len(delayed) - len(dead)
        heapq.heapify(returned)
        heapq.heapify(delayed)
        self._returned, self._delayed, self.dead = returned, delayed, dead
        held = {offset for consumer in self.consumers for offset in consumer.in_flight} | self.dying.keys()
        self.attempts = {at: tries for at, tries in self.attempts.items() if at >= earliest or at in held}
        self.overtaken += passed
        return passed

    def record(self, visible: int) -> SubscriptionRecord:
        """Return what must be kept of it when the topic's events below `visible` can be read."""
        floors = {
            p: lane.at(position)
            for p, lane in self._lanes.by_priority.items()
            if (position := self.positions.get(p, 0)) < lane.end
        }
        unsettled = {offset for _, offset, _ in (*self._returned, *self._delayed)}
        unsettled = unsettled.union(self.dying, *(consumer.in_flight for consumer in self.consumers))
        dead = [(offset, letter) for offset, (_, letter) in self.dead.items()]
        return SubscriptionRecord(
            self.topic,
            self.name,
            self.start,
            visible,
            floors,
            self.policy,
            sorted(unsettled),
            dead,
            dict(self.attempts),
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
        self.attempts = dict(record.attempts)
        self.dead = {offset: (priority_of(offset), letter) for offset, letter in record.dead}
        opened = [
            (offset, priority)
            for offset, priority in ((offset, priority_of(offset)) for offset in record.open if offset not in self.dead)
            if not any(first <= offset <= last for first, last in runs.get(priority, ()))
        ]
        # What is dead or open has been taken, too, wherever its lane's floor is.
        passed = {priority: list(some) for priority, some in runs.items()}
        for offset, priority in [*opened, *((offset, priority) for offset, (priority, _) in self.dead.items())]:
            passed.setdefault(priority, []).append((offset, offset))
        for priority, lane in self._lanes.by_priority.items():
            position = lane.position_of(record.floors.get(priority, record.floor))
            for first, last in sorted(passed.get(priority, ())):
                begin, end = lane.position_of(first), lane.position_of(last + 1)
                if begin > position:
                    self._reopen(lane.slice(position, begin - position), priority)
                position = max(position, end)
            self.positions[priority] = position
        for offset, priority in opened:
            self._reopen([offset], priority)

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

    def _take_aged(self, count: int, aged: int, taken: list[Taken]) -> int:
        """Take the oldest of what is below offset `aged` in the lanes, those of a priority together; returns how many."""
        chunks: list[tuple[int, int, list[int]]] = []
        for priority in self._lanes.descending:
            position = self.positions.get(priority, 0)
            chunk = self._lanes.by_priority[priority].slice(position, count)
            chunks.append((priority, position, chunk[: bisect_left(chunk, aged)]))
        oldest = sorted(offset for _, _, chunk in chunks for offset in chunk)[:count]
        for priority, position, chunk in chunks if oldest else ():
            if some := chunk[: bisect_right(chunk, oldest[-1])]:
                taken.append(Taken(slots.first_slot(priority, position), some))
                self.positions[priority] = position + len(some)
        return len(oldest)

    def _pop_returned(self) -> Taken:
        _, offset, slot = heapq.heappop(self._returned)
        return Taken(slot, [offset])

    def _is_ahead(self, offset: int, priority: int) -> bool:
        """Whether an event's lane has it behind the position."""
        lane = self._lanes.by_priority.get(priority)
        return lane is not None and lane.position_of(offset) >= self.positions.get(priority, 0) and offset >= lane.reach

    def _count_before(self, offset: int, priority: int) -> int:
        """Count what waits before an event: higher priorities, and lower offsets of its own."""
        before = sum(entry[:2] < (-priority, offset) for entry in self._returned)
        for p, lane in self._lanes.by_priority.items():
            if p >= priority:
                end = lane.end if p > priority else lane.position_of(offset)
                before += max(0, end - self.positions.get(p, 0))
        return before
