"""Give the events of an ordered subscription to its consumers, each key to one consumer at a time.

The decisions about single keys are those of `broker.core.topic.ordered_backlog`. An event can be given to a consumer only once
its line was read, since the line has the key. The lines of the newest events are in memory. Others are read in a thread, and no
further events are taken meanwhile: an event of the same key could overtake those whose keys are not known yet.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from broker.core.topic.backlog import Taken
from broker.core.topic.kept import settled_record
from broker.core.topic.key_queue import key_of
from broker.core.topic.ordered_backlog import OrderedBacklog
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.work import Look, Work

__all__ = ["OrderedDelivery"]

HandOver: TypeAlias = Callable[[Topic, Consumer, list[Taken]], None]
Deliver: TypeAlias = Callable[[Consumer, list[int], list[bytes]], None]


class OrderedDelivery:
    """Gives events to consumers by `hand_over`, which finds their lines, or by `deliver` together with their lines."""

    def __init__(self, work: Work, counts: dict[str, int], hand_over: HandOver, deliver: Deliver) -> None:
        self._work = work
        self._counts = counts
        self._hand_over = hand_over
        self._deliver = deliver

    def pump(self, topic: Topic, subscription: Subscription, backlog: OrderedBacklog, take_max: int) -> None:
        """Give waiting events to consumers that have room, until there are no more events or no more room.

        At most `take_max` events are taken in one step.
        """
        if backlog.strangers:
            return
        consumers = list(subscription.next_consumers())
        while True:
            for consumer in consumers:
                if (room := consumer.room) > 0 and (parked := list(backlog.unpark(consumer, min(room, take_max)))):
                    self._hand_over(topic, consumer, parked)
            rooms = {consumer: room for consumer in consumers if (room := consumer.room) > 0}
            if not rooms or backlog.looked_at:
                return
            taken = backlog.take_next(min(sum(rooms.values()), take_max))
            if not taken:
                return
            offsets, slots = _places(taken)
            lines = topic.recent.lines(offsets)
            if lines is None:
                backlog.look_at(offsets, slots)
                self._work.tasks.append(Look(topic, subscription, offsets))
                return
            self._assign(backlog, rooms, offsets, slots, lines)

    def note_looked(self, look: Look, found: list[tuple[int, bytes]]) -> None:
        """Give or park events whose lines were read. An event that is damaged or no longer in the log counts as settled."""
        subscription, backlog, earliest = look.subscription, look.subscription.backlog, look.topic.log.earliest
        if not isinstance(backlog, OrderedBacklog):
            return
        slots = backlog.end_look(look.offsets)
        known = [(offset, line) for offset, line in found if offset in slots and offset >= earliest]
        consumers = subscription.next_consumers()
        rooms = {consumer: room for consumer in consumers if (room := consumer.room) > 0}
        offsets = [offset for offset, _ in known]
        self._assign(backlog, rooms, offsets, [slots.pop(offset) for offset in offsets], [line for _, line in known])
        if slots:
            subscription.settled += len(slots)
            overtaken = sum(offset < earliest for offset in slots)
            subscription.overtaken += overtaken
            self._counts["damaged"] += len(slots) - overtaken
            if subscription.is_durable:
                self._work.keep(settled_record(subscription, slots))

    def _assign(
        self,
        backlog: OrderedBacklog,
        rooms: dict[Consumer, int],
        offsets: Sequence[int],
        slots: Sequence[int],
        lines: Sequence[bytes],
    ) -> None:
        """Give events to the owners of their keys, or if there is none, to the consumers in turn. Park the others."""
        given: dict[Consumer, tuple[list[int], list[int], list[bytes]]] = {one: ([], [], []) for one in rooms}
        turn = _Turn(rooms, len(offsets))
        for offset, slot, line, key in zip(offsets, slots, lines, map(key_of, lines), strict=True):
            if key is None:
                consumer = turn.for_event()
                if consumer is None:
                    backlog.give_back({offset: slot})
                    continue
            else:
                queue = backlog.queue_of(key)
                consumer = turn.for_key() if queue.owner is None else cast("Consumer", queue.owner)
                if consumer is None or not rooms.get(consumer) or not queue.can_grow:
                    backlog.park(queue, offset, slot)
                    continue
                backlog.fly(queue, offset, consumer)
            rooms[consumer] -= 1
            its_offsets, its_slots, its_lines = given[consumer]
            its_offsets.append(offset)
            its_slots.append(slot)
            its_lines.append(line)
        for consumer, (its_offsets, its_slots, its_lines) in given.items():
            if its_offsets:
                consumer.in_flight.update(zip(its_offsets, its_slots, strict=True))
                self._deliver(consumer, its_offsets, its_lines)


class _Turn:
    """The consumers in turn for the events that no consumer must have. Only those that have room get an event."""

    def __init__(self, rooms: dict[Consumer, int], count: int) -> None:
        self._rooms = rooms
        self._consumers = deque(rooms)
        # Neighbouring events without a key go to one consumer, so that its acks settle few runs of events.
        self._share = self._left = -(-count // max(1, len(rooms)))

    def for_key(self) -> Consumer | None:
        """Return the consumer of a key that has no owner: a different one for each key. None if no consumer has room."""
        consumer = self._first()
        if consumer is not None:
            self._consumers.rotate(-1)
        return consumer

    def for_event(self) -> Consumer | None:
        """Return the consumer of an event without a key, None if no consumer has room."""
        if self._left == 0:
            self._consumers.rotate(-1)
            self._left = self._share
        self._left -= 1
        return self._first()

    def _first(self) -> Consumer | None:
        consumers = self._consumers
        while consumers and self._rooms[consumers[0]] <= 0:
            consumers.popleft()
        return consumers[0] if consumers else None


def _places(taken: list[Taken]) -> tuple[list[int], list[int]]:
    """Return the offsets of taken events in their order, and their slots."""
    offsets: list[int] = []
    slots: list[int] = []
    for slot, run in taken:
        offsets += run
        slots += range(slot, slot + len(run))
    if len(taken) > 1:
        pairs = sorted(zip(offsets, slots, strict=True))
        return [offset for offset, _ in pairs], [slot for _, slot in pairs]
    return offsets, slots
