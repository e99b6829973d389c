"""Take events from a backlog and give them to a consumer.

From then on they are in flight, and the outbox has their lines.
"""

from typing import Any

from broker.core.delivery.ordered import OrderedDelivery, most_at_once
from broker.core.delivery.timed import Lines, TimedEvents
from broker.core.delivery.timers import Timers
from broker.core.topic.backlog import Taken
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.work import Fetch, Work
from tweetwire.protocol.event_lines import redelivered, suspected

__all__ = ["Handing"]


class Handing:
    """Gives events to consumers. Lines that are no longer in memory are left to read in `work`."""

    def __init__(self, work: Work, counts: dict[str, int], timed: TimedEvents, timers: Timers[Any]) -> None:
        self._work = work
        self._counts = counts
        self._timed = timed
        self.ordered = OrderedDelivery(work, counts, timers, self.take_next, self.deliver)

    def take_next(self, topic: Topic, subscription: Subscription, room: int, aged: int, now_ms: int) -> list[Taken]:
        """Take up to `room` waiting events in their order, or fewer if they are large. See `Backlog.take_next`."""
        most = min(room, most_at_once(topic))
        if topic.schedule.is_used:
            return self._timed.take_next(topic, subscription, most, aged, now_ms)
        return subscription.backlog.take_next(most, aged)

    @staticmethod
    def aged(topic: Topic, subscription: Subscription, now_ms: int) -> int:
        """Return the offset below which events have waited for so long that they go first."""
        max_wait_ms = subscription.policy.max_wait_ms
        return topic.ages.offset_before(now_ms - max_wait_ms, topic.visible) if max_wait_ms else 0

    def hand_over(self, topic: Topic, consumer: Consumer, taken: list[Taken], now_ms: int) -> None:
        """Put events in flight that were taken from the backlog, and deliver their lines."""
        offsets: list[int] = []
        for slot, run in taken:
            consumer.in_flight.update(zip(run, range(slot, slot + len(run)), strict=True))
            offsets += run
        if consumer.share is not None:
            consumer.share.held += len(offsets)
        lines = topic.recent.lines(offsets)
        if lines is None:
            consumer.fetching = True
            self._work.tasks.append(Fetch(topic, consumer, offsets))
        else:
            self.deliver(topic, consumer, (offsets, lines), now_ms)

    def deliver(self, topic: Topic, consumer: Consumer, found: Lines, now_ms: int) -> None:
        """Deliver the lines of events that are in flight with a consumer, and settle the events that have expired."""
        offsets, lines = (
            self._timed.without_expired(topic, consumer, found, now_ms) if topic.schedule.expiring else found
        )
        attempts = consumer.subscription.attempts
        if attempts:
            again = attempts.keys() & set(offsets)
            if again:
                consumer.subscription.redelivered += len(again)
                lines = [
                    redelivered(line, attempts[offset].count + 1) if offset in again else line
                    for offset, line in zip(offsets, lines, strict=True)
                ]
        if consumer.promise is not None and (suspects := consumer.subscription.suspects):
            lines = [
                suspected(line) if offset in suspects else line for offset, line in zip(offsets, lines, strict=True)
            ]
        consumer.deliver_lines(offsets, lines)
        self._counts["delivered"] += len(lines)
        self._work.sessions.add(consumer.session)
