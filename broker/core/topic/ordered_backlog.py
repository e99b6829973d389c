"""The backlog of an ordered subscription, which keeps the events of one key in the order of their offsets.

An event is taken by offset, whatever its priority. Once it is taken, its line is read for its key. Always true, for each key:

- its events in flight are with one consumer, its *owner*, and were delivered in the order of their offsets;
- an event waits while an earlier one of its key waits, is in a pause, or is in flight with another consumer;
- if an event comes back from its owner, the later ones of its key are taken back from the owner too, and follow it again.

Events that were taken and cannot be delivered yet are *parked*: their offsets are in the queue of their key. The backlog knows
only the keys of events that are parked or in flight. Events without a key are not ordered.
"""

import heapq
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Final, Self

from broker.core.steps import Steps, sliced
from broker.core.topic.backlog import Backlog, Entry, Taken
from broker.core.topic.key_queue import FLYING_MAX, Blocker, KeyQueue, Owner
from broker.core.topic.lanes import Lanes
from tweetwire.protocol.policy import Policy

__all__ = ["PARKED_MAX", "OrderedBacklog", "backlog_of", "continued"]

PARKED_MAX: Final = 50_000
"""How many events of a subscription may be parked. Beyond that, the subscription takes no further events."""

_ALL: Final = 1 << 62


def backlog_of(policy: Policy, lanes: Lanes, start: int) -> Backlog:
    """Return the backlog of a new subscription with a policy."""
    return OrderedBacklog(lanes, start) if policy.ordered == "key" else Backlog(lanes, start)


def continued(before: Backlog, policy: Policy, lanes: Lanes, start: int, in_flight: Iterable[int]) -> Backlog:
    """Return the backlog of a subscription after a change of its policy. Its consumers have the events `in_flight`."""
    if isinstance(before, OrderedBacklog) == (policy.ordered == "key"):
        return before
    return backlog_of(policy, lanes, start).continuing(before, start, in_flight)


class OrderedBacklog(Backlog):
    """The events of an ordered subscription that wait. Those in `looked_at` were taken, and their lines are being read."""

    __slots__ = (
        *("_due", "_parked", "_pauses", "_ready", "keys", "looked_at", "queue_of", "strangers"),
        "taken_back",
    )

    def __init__(self, lanes: Lanes, start: int) -> None:
        super().__init__(lanes, start)
        # The queues by key, and by the events in flight or parked; the slots of the parked ones
        self.keys: dict[int, KeyQueue] = {}
        self.queue_of: dict[int, KeyQueue] = {}
        self._parked: dict[int, int] = {}
        # When the pause of a parked event ends, and a heap of (due ms, offset) that may name events in no pause
        self._due: dict[int, int] = {}
        self._pauses: list[tuple[int, int]] = []
        # By owner, the queues whose first event may be delivered now, and only to this owner. Under None, the queues
        # whose first event any consumer may get.
        self._ready: dict[Owner | None, dict[KeyQueue, None]] = {}
        self.looked_at: dict[int, int] = {}
        # Events that were given to consumers before the subscription was ordered. Nothing is taken until they are settled or
        # given back, since their keys are not known.
        self.strangers: set[int] = set()
        # Events that were taken back from their owners and are not settled. A consumer may still have an older deadline for
        # them.
        self.taken_back: set[int] = set()

    def continuing(self, before: Backlog, start: int, in_flight: Iterable[int]) -> Self:
        """Take over the events of a backlog that this one replaces, and return this one."""
        self.strangers.update(in_flight)
        return super().continuing(before, start, in_flight)

    @property
    def size(self) -> int:
        """How many events wait, including those in a pause."""
        return super().size + len(self._parked) + len(self.looked_at)

    @property
    def delayed(self) -> int:
        """How many events wait in a pause after a failed try."""
        return super().delayed + len(self._due)

    @property
    def parked(self) -> int:
        """How many events wait for an earlier one of their key, or for room at its owner."""
        return len(self._parked)

    @property
    def next_due(self) -> int | None:
        """The time (ms) when the next pause ends, None if no event is in a pause."""
        dues = [heap[0][0] for heap in (self._delayed, self._pauses) if heap]
        return min(dues, default=None)

    def take_next(self, count: int, aged: int = 0) -> list[Taken]:
        """Take up to `count` events by offset, fewer while many are parked. The caller passes them to `look_at` or `assign`."""
        count = min(count, PARKED_MAX - len(self._parked))
        if count <= 0:
            return []
        taken: list[Taken] = []
        if self._returned:
            lowest = min(self.heads().values(), default=_ALL)
            while self._returned and len(taken) < count and self._returned[0][1] < lowest:
                taken.append(self._pop_returned())
            if taken:
                return taken
        self._take_aged(count, self._returned[0][1] if self._returned else _ALL, taken)
        return taken

    # Events that come back

    def give_back(self, in_flight: Mapping[int, int]) -> None:
        """Let events ({offset: slot}) wait again. Later events of their keys are taken back from their owners."""
        for offset, slot in in_flight.items():
            queue = self.queue_of.get(offset)
            if queue is None:
                heapq.heappush(self._returned, (0, offset, slot))
            else:
                self._return(queue, offset, slot)

    def delay(self, offset: int, slot: int, due_ms: int) -> None:
        """Let an event wait again, in a pause until `due_ms`. Later events of its key wait for it."""
        queue = self.queue_of.get(offset)
        if queue is None:
            super().delay(offset, slot, due_ms)
            return
        self._due[offset] = due_ms
        heapq.heappush(self._pauses, (due_ms, offset))
        self._return(queue, offset, slot)

    def end_pauses(self, now_ms: int) -> None:
        """End the pauses that are over, so that their events can be taken."""
        super().end_pauses(now_ms)
        while self._pauses and self._pauses[0][0] <= now_ms:
            due_ms, offset = heapq.heappop(self._pauses)
            if self._due.get(offset) == due_ms:
                del self._due[offset]
                self._list(self.queue_of[offset])

    def note_out(self, offsets: Collection[int]) -> None:
        """Note that events are no longer in flight, so that other events of their keys can be delivered."""
        if self.strangers:
            self.strangers.difference_update(offsets)
        queue_of = self.queue_of
        for offset in offsets:
            queue = queue_of.get(offset)
            if queue is None:
                continue
            queue.flying.discard(offset)
            if not queue.parked:
                if not queue.flying:
                    queue.owner = None
            elif not queue.flying:
                self._unlist(queue)
                queue.owner = None
                self._list(queue)
            elif len(queue.flying) == FLYING_MAX - 1:
                self._list(queue)

    def given_before(self, offsets: list[int], attempts: Container[int]) -> Iterable[int]:
        """Return those of `offsets` that a consumer may have had before."""
        if not self.taken_back:
            return super().given_before(offsets, attempts)
        return [offset for offset in offsets if offset in attempts or offset in self.taken_back]

    def forget(self, offsets: Collection[int]) -> None:
        """Forget events that are settled or dead, so that the next events of their keys can be delivered."""
        pop, keys = self.queue_of.pop, self.keys
        for offset in offsets:
            queue = pop(offset, None)
            if queue is not None and not queue.flying and not queue.parked:
                keys.pop(queue.key, None)
        if self.taken_back:
            self.taken_back.difference_update(offsets)

    def pass_over(self, earliest: int, start: int) -> int:
        """Drop the events below offset `earliest`, which the log no longer has. Return their number."""
        lost = [offset for offset in self._parked if offset < earliest]
        touched = {self.queue_of[offset] for offset in lost}
        for offset in lost:
            del self._parked[offset]
            self._due.pop(offset, None)
        for queue in touched:
            self._unlist(queue)
            queue.parked = [offset for offset in queue.parked if offset >= earliest]
            heapq.heapify(queue.parked)
            self._list(queue)
        self.forget(lost)
        unread = [offset for offset in self.looked_at if offset < earliest]
        for offset in unread:
            del self.looked_at[offset]
        return super().pass_over(earliest, start) + len(lost) + len(unread)

    # Delivery

    def look_at(self, offsets: list[int], slots: list[int]) -> None:
        """Keep taken events while their lines are read."""
        self.looked_at.update(zip(offsets, slots, strict=True))

    def end_look(self, offsets: Iterable[int]) -> dict[int, int]:
        """Return those of `offsets` that are still looked at, with their slots. The caller assigns or settles them."""
        return {offset: self.looked_at.pop(offset) for offset in offsets if offset in self.looked_at}

    def park(self, queue: KeyQueue, offset: int, slot: int) -> None:
        """Let an event wait until it can be delivered in its order."""
        self._parked[offset] = slot
        self.queue_of[offset] = queue
        parked = queue.parked
        if parked and parked[0] < offset:
            heapq.heappush(parked, offset)
            return
        self._unlist(queue)
        heapq.heappush(parked, offset)
        self._list(queue)

    def unpark(self, owner: Owner, count: int) -> tuple[list[int], list[int]]:
        """Take up to `count` parked events that may be delivered to a consumer now. Return their offsets and their slots."""
        offsets: list[int] = []
        for whose in (owner, None):
            while len(offsets) < count and (ready := self._ready.get(whose)):
                queue = next(iter(ready))
                self._unlist(queue)
                queue.owner = owner
                parked, due = queue.parked, self._due
                left = min(count - len(offsets), FLYING_MAX - len(queue.flying))
                some = [heapq.heappop(parked)]
                while parked and len(some) < left and parked[0] not in due:
                    some.append(heapq.heappop(parked))
                queue.flying.update(some)
                offsets += some
                self._list(queue)
        return offsets, list(map(self._parked.pop, offsets))

    # Reports

    def apart(self) -> list[Entry]:
        """Return a copy of the entries outside the lanes."""
        return [*super().apart(), *((0, *entry) for entry in (*self._parked.items(), *self.looked_at.items()))]

    def pause_end(self, offset: int) -> Steps[int | None]:
        """Return the time (ms) when the pause of an event ends, None if it is in no pause."""
        due_ms = self._due.get(offset)
        return due_ms if due_ms is not None else (yield from super().pause_end(offset))

    def count_before(self, offset: int, priority: int) -> Steps[int | None]:
        """Return how many waiting events are below `offset`, None if the event at `offset` does not wait."""
        apart = [*self._returned, *((0, *entry) for entry in (*self._parked.items(), *self.looked_at.items()))]
        found = yield from sliced(apart, lambda some: any(entry[1] == offset for entry in some))
        if not any(found) and not self._is_ahead(offset, priority):
            return None
        before = yield from sliced(apart, lambda some: sum(entry[1] < offset for entry in some))
        lanes = self._lanes.by_priority.items()
        ahead = (lane.position_of(offset) - self.positions.get(number, 0) for number, lane in lanes)
        return sum(before) + sum(count for count in ahead if count > 0)

    def blocker(self, offset: int) -> Blocker | None:
        """Return the earlier event of its key that a parked event waits for, None if there is none."""
        if offset not in self._parked:
            return None
        queue = self.queue_of[offset]
        earliest = min((*queue.flying, queue.parked[0]))
        return Blocker(earliest, earliest in queue.flying) if earliest < offset else None

    def _return(self, queue: KeyQueue, offset: int, slot: int) -> None:
        """Park an event that was in flight, and also the later events of its key that are still in flight."""
        # While the event was out, its queue may have been empty and forgotten.
        self.keys[queue.key] = queue
        later = [one for one in queue.flying if one > offset]
        self.park(queue, offset, slot)
        if later and queue.owner is not None:
            for one, its_slot in queue.owner.take_out(later).items():
                self.taken_back.add(one)
                self.park(queue, one, its_slot)

    def _is_ready(self, queue: KeyQueue) -> bool:
        """Whether the first parked event of a queue may be delivered now: to the owner, or to any consumer if there is none."""
        return bool(queue.parked) and queue.parked[0] not in self._due and len(queue.flying) < FLYING_MAX

    def _list(self, queue: KeyQueue) -> None:
        if self._is_ready(queue):
            self._ready.setdefault(queue.owner, {})[queue] = None

    def _unlist(self, queue: KeyQueue) -> None:
        ready = self._ready.get(queue.owner)
        if ready is not None and queue in ready:
            del ready[queue]
            if not ready:
                del self._ready[queue.owner]
