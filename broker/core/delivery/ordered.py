"""Give the events of an ordered subscription to its consumers, each key to one consumer at a time.

The decisions about single keys are those of `broker.core.topic.ordered_backlog`. An event can be given to a consumer only once
its line was read, since the line has the key. The lines of the newest events are in memory. Others are read in a thread, and no
further events are taken meanwhile: an event of the same key could overtake those whose keys are not known yet.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast

from broker.core.delivery.timed import Lines
from broker.core.delivery.timers import Timers
from broker.core.topic.backlog import Taken
from broker.core.topic.kept import settled_record
from broker.core.topic.key_queue import FLYING_MAX, KeyQueue, keys_of
from broker.core.topic.ordered_backlog import OrderedBacklog
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.work import Fetch, Look, Work

__all__ = ["OrderedDelivery", "most_at_once"]

Take: TypeAlias = Callable[[Topic, Subscription, int, int, int], list[Taken]]
Deliver: TypeAlias = Callable[[Topic, Consumer, Lines, int], None]


TAKE_MAX: Final = 1000
TAKE_BYTES: Final = 1 << 20
PARKED_A_TURN: Final = 2000
"""After this many events of a subscription were parked, other clients have their turn."""
EXPIRED_A_TURN: Final = 500
"""The same for events that have expired while they were parked, and are settled one after the other."""


def most_at_once(topic: Topic) -> int:
    """Return how many events of a topic are taken in one step: fewer if they are large."""
    return min(TAKE_MAX, max(1, TAKE_BYTES // topic.recent.mean_bytes))


class OrderedDelivery:
    """Decides which consumer gets each event.

    `take` takes events that may be delivered now. `deliver` gives a consumer the lines of events that are in flight with it.
    """

    def __init__(self, work: Work, counts: dict[str, int], timers: Timers[Any], take: Take, deliver: Deliver) -> None:
        self._work = work
        self._counts = counts
        self._timers = timers
        self._take = take
        self._deliver = deliver

    def pump(self, topic: Topic, subscription: Subscription, backlog: OrderedBacklog, now_ms: int) -> None:
        """Give waiting events to consumers that have room, until there are no more events or no more room.

        If very many events have to be parked before, or have expired, a timer continues.
        """
        if backlog.strangers:
            return
        consumers = list(subscription.next_consumers())
        parked_max, expired_max = backlog.parked + PARKED_A_TURN, subscription.expired.count + EXPIRED_A_TURN
        while self._give_parked(topic, backlog, consumers, now_ms) or self._give_next(
            topic, subscription, backlog, consumers, now_ms
        ):
            if backlog.parked >= parked_max or subscription.expired.count >= expired_max:
                self._timers.start(now_ms + 1, subscription)
                break
        for consumer in consumers:
            # A consumer of a pattern may have to wait: its events of other topics take the room, or its client has not
            # read enough.
            if consumer.share is not None and (consumer.share.room <= 0 or not consumer.session.outbox.has_room):
                consumer.share.queue[consumer] = None

    def _give_parked(self, topic: Topic, backlog: OrderedBacklog, consumers: list[Consumer], now_ms: int) -> bool:
        """Give parked events whose turn it is to consumers that have room. Return whether there were any."""
        most, is_given = most_at_once(topic), False
        for consumer in consumers:
            room = consumer.room
            offsets, slots = backlog.unpark(consumer, min(room, most)) if room > 0 else ([], [])
            if not offsets:
                continue
            is_given = True
            _put_in_flight(consumer, offsets, slots)
            lines = topic.recent.lines(offsets)
            if lines is None:
                consumer.fetching = True
                self._work.tasks.append(Fetch(topic, consumer, offsets))
            else:
                self._deliver(topic, consumer, (offsets, lines), now_ms)
        return is_given

    def _give_next(
        self,
        topic: Topic,
        subscription: Subscription,
        backlog: OrderedBacklog,
        consumers: list[Consumer],
        now_ms: int,
    ) -> bool:
        """Take the next events, and give or park them. Return whether there were any whose lines are in memory."""
        rooms = {consumer: room for consumer in consumers if (room := consumer.room) > 0}
        if not rooms or backlog.looked_at:
            return False
        # Take as many as possible. Those that no consumer can have yet are parked, so that later acks find some.
        taken = self._take(topic, subscription, TAKE_MAX, 0, now_ms)
        if not taken:
            return False
        offsets, slots = _places(taken)
        lines = topic.recent.lines(offsets)
        if lines is None:
            backlog.look_at(offsets, slots)
            self._work.tasks.append(Look(topic, subscription, offsets))
            return False
        self._assign(topic, backlog, rooms, _Found(offsets, slots, lines), now_ms)
        return True

    def note_looked(self, look: Look, found: list[tuple[int, bytes]], now_ms: int) -> None:
        """Give or park events whose lines were read. An event that is damaged or no longer in the log counts as settled."""
        subscription, backlog, earliest = look.subscription, look.subscription.backlog, look.topic.log.earliest
        if not isinstance(backlog, OrderedBacklog):
            return
        slots = backlog.end_look(look.offsets)
        known = [(offset, line) for offset, line in found if offset in slots and offset >= earliest]
        consumers = subscription.next_consumers()
        rooms = {consumer: room for consumer in consumers if (room := consumer.room) > 0}
        offsets = [offset for offset, _ in known]
        read = _Found(offsets, [slots.pop(offset) for offset in offsets], [line for _, line in known])
        self._assign(look.topic, backlog, rooms, read, now_ms)
        if slots:
            subscription.settled += len(slots)
            overtaken = sum(offset < earliest for offset in slots)
            subscription.overtaken += overtaken
            self._counts["damaged"] += len(slots) - overtaken
            if subscription.is_durable:
                self._work.keep(settled_record(subscription, slots))

    def _assign(
        self, topic: Topic, backlog: OrderedBacklog, rooms: dict[Consumer, int], found: "_Found", now_ms: int
    ) -> None:
        """Give events to the owners of their keys, or if there is none, to the consumers in turn. Park the others."""
        given: dict[Consumer, tuple[list[int], list[int], list[bytes]]] = {one: ([], [], []) for one in rooms}
        turn = _Turn(rooms, len(found.offsets))
        queues, queue_of = backlog.keys, backlog.queue_of
        for offset, slot, line, key in zip(*found, keys_of(found.lines), strict=True):
            if key is None:
                consumer = turn.for_event()
                if consumer is None:
                    backlog.give_back({offset: slot})
                    continue
            else:
                queue = queues.get(key)
                if queue is None:
                    queue = queues[key] = KeyQueue(key)
                # For most events, others of their key already wait or are in flight, so check this first.
                consumer = None
                if not queue.parked and len(queue.flying) < FLYING_MAX:
                    consumer = turn.for_key() if queue.owner is None else cast("Consumer", queue.owner)
                if consumer is None or not rooms.get(consumer):
                    backlog.park(queue, offset, slot)
                    continue
                queue.owner = consumer
                queue.flying.add(offset)
                queue_of[offset] = queue
            rooms[consumer] -= 1
            its_offsets, its_slots, its_lines = given[consumer]
            its_offsets.append(offset)
            its_slots.append(slot)
            its_lines.append(line)
        for consumer, (its_offsets, its_slots, its_lines) in given.items():
            if its_offsets:
                _put_in_flight(consumer, its_offsets, its_slots)
                self._deliver(topic, consumer, (its_offsets, its_lines), now_ms)


class _Found(NamedTuple):
    """Taken events in the order of their offsets."""

    offsets: list[int]
    slots: list[int]
    lines: list[bytes]


class _Turn:
    """Chooses consumers in turn for the events that any consumer may get. Only consumers with room are chosen."""

    def __init__(self, rooms: dict[Consumer, int], count: int) -> None:
        self._rooms = rooms
        self._consumers = deque(rooms)
        # Neighbouring events without a key go to one consumer, so that its acks settle few runs of events.
        self._share = self._left = -(-count // max(1, len(rooms)))

    def for_key(self) -> Consumer | None:
        """Return a consumer for a key that has no owner: the next one at each call. None if no consumer has room."""
        consumer = self._first()
        if consumer is not None:
            self._consumers.rotate(-1)
        return consumer

    def for_event(self) -> Consumer | None:
        """Return a consumer for an event without a key, None if no consumer has room."""
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


def _put_in_flight(consumer: Consumer, offsets: list[int], slots: list[int]) -> None:
    consumer.in_flight.update(zip(offsets, slots, strict=True))
    if consumer.share is not None:
        consumer.share.held += len(offsets)


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
