"""The events of a subscription that no consumer has: those not delivered yet, returned, or in a pause after a failed try.

Always true: an event of the backlog is in exactly one of these three groups. The backlog gives events by priority, and within a
priority by offset.

An event that is not due yet counts as not delivered. The position in its lane passes it, and it is returned when it is due.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Self, TypeAlias

from broker.core.steps import Steps, sliced
from broker.core.topic import slots
from broker.core.topic.lanes import Lanes
from broker.core.topic.passed import Passed
from broker.core.topic.slots import Taken

__all__ = ["Backlog", "Taken"]

Entry: TypeAlias = tuple[int, int, int]
"""An entry is (key, offset, slot), see `slots`. The key is the negative priority, or the time when a pause ends."""


class Backlog:
    """The events that wait.

    It has a position in each lane of the topic, and two heaps of events that were taken before and wait again.
    """

    __slots__ = ("_delayed", "_lanes", "_passed", "_returned", "_strays", "positions")

    def __init__(self, lanes: Lanes, start: int) -> None:
        self.positions = {priority: lane.position_of(start) for priority, lane in lanes.by_priority.items()}
        self._lanes = lanes
        # (-priority, offset, slot): the order in which returned events are delivered
        self._returned: list[Entry] = []
        # (due ms, offset, slot)
        self._delayed: list[Entry] = []
        self._strays = 0
        self._passed = Passed(lanes)

    def continuing(self, before: "Backlog", start: int, in_flight: Iterable[int]) -> Self:
        """Take over the events of a backlog that this one replaces, and return this one. Pauses after failed tries end.

        The subscription began at `start`, and its consumers have the events `in_flight`.
        """
        self.positions, self._strays = before.positions, before.strays
        for _, offset, slot in before.apart():
            self.give_back({offset: slot})
        self.count_passed(start)
        return self

    @property
    def strays(self) -> int:
        """How many slots of strays are used."""
        return self._strays

    @property
    def size(self) -> int:
        """How many events wait, including those in a pause."""
        lanes = self._lanes.by_priority.items()
        in_lanes = sum(lane.end - self.positions.get(priority, 0) for priority, lane in lanes)
        return len(self._returned) + len(self._delayed) + in_lanes + self._passed.count

    @property
    def delayed(self) -> int:
        """How many events wait in a pause after a failed try."""
        return len(self._delayed)

    @property
    def returned(self) -> int:
        """How many events wait outside the lanes, without a pause."""
        return len(self._returned)

    @property
    def next_due(self) -> int | None:
        """The time (ms) when the next pause ends, None if no event is in a pause."""
        return self._delayed[0][0] if self._delayed else None

    def take_next(self, count: int, aged: int = 0) -> list[Taken]:
        """Take up to `count` events, highest priority first, by offset within a priority.

        Events below offset `aged` have waited too long: they come first, the oldest before the others.
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

    def take_due(self, count: int, aged: int, pass_max: int) -> tuple[list[Taken], int]:
        """Take events as `take_next` does, without those that are not due. Pass up to about `pass_max` of them.

        Returns the events, and how many were passed.
        """
        passed = self._passed.pass_heads(self.positions, pass_max)
        taken, more = self._passed.pass_taken(self.take_next(count, aged))
        return taken, passed + more

    def release(self, due: Iterable[tuple[int, int]], start: int) -> None:
        """Let events of `due`, (offset, priority), wait if the positions passed them. The subscription began at `start`."""
        for priority, offsets in self._passed.release(due, start, self.heads()).items():
            self.reopen(offsets, priority)

    def count_passed(self, start: int) -> None:
        """Count again the events that the positions have passed and that are not due."""
        self._passed.count_again(start, self.heads())

    def give_back(self, in_flight: Mapping[int, int]) -> None:
        """Let events ({offset: slot}) wait again, in the order of priority and offset."""
        for offset, slot in in_flight.items():
            heapq.heappush(self._returned, (-slots.priority_of(slot), offset, slot))

    def note_out(self, offsets: Collection[int]) -> None:
        """Note that events are no longer in flight. The caller then gives each of them back, or forgets it."""

    def forget(self, offsets: Collection[int]) -> None:
        """Forget events that are settled or dead."""

    def given_before(self, offsets: list[int], attempts: Container[int]) -> Iterable[int]:
        """Return those of `offsets` that a consumer may have had before, such as those with failed `attempts`."""
        return filter(attempts.__contains__, offsets) if attempts else ()

    def delay(self, offset: int, slot: int, due_ms: int) -> None:
        """Let an event wait again, in a pause until `due_ms`."""
        heapq.heappush(self._delayed, (due_ms, offset, slot))

    def end_pauses(self, now_ms: int) -> None:
        """End the pauses that are over, so that their events can be taken."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, offset, slot = heapq.heappop(self._delayed)
            self.give_back({offset: slot})

    def reopen(self, offsets: Sequence[int], priority: int) -> None:
        """Let events wait again. Their slots are no longer known."""
        before = -1
        for offset in offsets:
            # Neighbours get consecutive slots, so that their acks are one run.
            self._strays += 1 if offset == before + 1 else 2
            self.give_back({offset: slots.stray_slot(priority, self._strays)})
            before = offset

    def pass_over(self, earliest: int, start: int) -> int:
        """Drop the events below offset `earliest`, which log and schedule no longer have. Return their number."""
        passed = self._passed.count
        for priority, lane in self._lanes.by_priority.items():
            position, after = self.positions.get(priority, 0), lane.position_of(earliest)
            if after > position:
                passed += after - position
                self.positions[priority] = after
        returned = [entry for entry in self._returned if entry[1] >= earliest]
        delayed = [entry for entry in self._delayed if entry[1] >= earliest]
        passed += len(self._returned) + len(self._delayed) - len(returned) - len(delayed)
        heapq.heapify(returned)
        heapq.heapify(delayed)
        self._returned, self._delayed = returned, delayed
        self.count_passed(start)
        return passed - self._passed.count

    def restore_position(self, priority: int, floor: int, passed: list[tuple[int, int]]) -> None:
        """Set the position in a lane to the end of `passed`: runs (first, last) of offsets that were taken before.

        The events from offset `floor` on that are between the runs wait again.
        """
        lane = self._lanes.by_priority[priority]
        position = lane.position_of(floor)
        for first, last in sorted(passed):
            begin, end = lane.position_of(first), lane.position_of(last + 1)
            if begin > position:
                between = lane.slice(position, begin - position)
                scheduled = self._lanes.schedule.among(between)
                self.reopen([offset for offset in between if offset not in scheduled], priority)
            position = max(position, end)
        self.positions[priority] = position

    @property
    def priorities(self) -> list[int]:
        """The priorities that have a lane."""
        return list(self._lanes.by_priority)

    def heads(self) -> dict[int, int]:
        """Return the next offset of each lane that has waiting events, by priority."""
        return {
            priority: lane.at(position)
            for priority, lane in self._lanes.by_priority.items()
            if (position := self.positions.get(priority, 0)) < lane.end
        }

    def apart(self) -> list[Entry]:
        """Return a copy of the entries outside the lanes."""
        return [*self._returned, *self._delayed]

    # Reports. They run in steps, since the backlog outside the lanes may be large.

    def pause_end(self, offset: int) -> Steps[int | None]:
        """Return the time (ms) when the pause of an event ends, None if it is in no pause."""
        for found in (yield from sliced(list(self._delayed), lambda some: _entry_of(some, offset))):
            if found is not None:
                return found[0]
        return None

    def count_before(self, offset: int, priority: int) -> Steps[int | None]:
        """Return how many events are delivered before the event at `offset`, None if that event does not wait."""
        returned = list(self._returned)
        came_back = any((yield from sliced(returned, lambda some: _entry_of(some, offset) is not None)))
        if not came_back and not self._is_ahead(offset, priority):
            return None
        key = (-priority, offset)
        before = yield from sliced(returned, lambda some: sum(entry[:2] < key for entry in some))
        return sum(before) + self._count_before_in_lanes(offset, priority)

    def lowest_in_lanes(self, start: int, count: int) -> Steps[list[int]]:
        """Return, in order, the lowest `count` offsets from `start` on that wait in the lanes."""
        found: list[int] = []
        for priority, lane in list(self._lanes.by_priority.items()):
            more = lane.slice(max(self.positions.get(priority, 0), lane.position_of(start)), count)
            found = sorted({*found, *more})[:count]
            yield None
        return found

    def by_priority(self) -> Steps[dict[int, int]]:
        """Return how many events wait, by priority, the highest first. Priorities without waiting events are left out."""
        apart = self.apart()
        lanes = self._lanes.by_priority.items()
        waiting = Counter({priority: lane.end - self.positions.get(priority, 0) for priority, lane in lanes})
        waiting.update(self._passed.by_priority)
        counted = yield from sliced(apart, lambda some: Counter(slots.priority_of(slot) for _, _, slot in some))
        for came_back in counted:
            waiting.update(came_back)
        return {priority: count for priority, count in sorted(waiting.items(), reverse=True) if count}

    def _take_lane(self, priority: int, count: int, taken: list[Taken]) -> int:
        """Take from one lane, mixed with returned events of the same or a higher priority. Return how many."""
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
        """Take the oldest events below offset `aged` from the lanes, grouped by priority. Return how many."""
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
        """Whether an event is at or after the position in its lane, so that it was not taken yet."""
        lane = self._lanes.by_priority.get(priority)
        return lane is not None and lane.position_of(offset) >= self.positions.get(priority, 0) and offset >= lane.reach

    def _count_before_in_lanes(self, offset: int, priority: int) -> int:
        """Count the events in the lanes before an event: higher priorities, and lower offsets of the same priority."""
        before = 0
        for other, lane in self._lanes.by_priority.items():
            if other >= priority:
                end = lane.end if other > priority else lane.position_of(offset)
                before += max(0, end - self.positions.get(other, 0))
        return before


def _entry_of(entries: Sequence[Entry], offset: int) -> Entry | None:
    return next((entry for entry in entries if entry[1] == offset), None)
