"""Deliver the events of topics that have delayed or expiring events: neither before they are due, nor after they expire.

Dates are compared with the system's clock, so setting that clock changes the time of deliveries, and nothing else.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias

from broker.core.dates import Dates
from broker.core.delivery.timers import Timers
from broker.core.topic.backlog import Taken
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.work import Work
from tweetwire.protocol.timing import times_of

__all__ = ["Lines", "TimedEvents"]

PASS_MAX: Final = 20_000
"""How many events that are not due are passed in one turn, so that other clients are not delayed."""
EXPIRE_MAX: Final = 5_000
"""How many expired events are settled between two ticks, if they are settled together."""
SETTLING: Final = 5
"""A consumer with a small prefetch settles them one by one. Settling one alone costs as much as this many in a group."""
RELEASE_MAX: Final = 1000
"""How many due events are released at a time."""
RELEASED_AT_ONCE: Final = 2000
"""How many due events are released in one millisecond of the broker's clock, so that other clients are not delayed."""

Lines: TypeAlias = tuple[list[int], list[bytes]]
"""Offsets, and the line of each."""


class Settling(Protocol):
    """The part of the delivery that timed events need."""

    timers: Timers[Any]

    def settle(self, consumer: Consumer, offsets: list[int]) -> int:
        """Settle those of `offsets` that are in flight with a consumer."""
        ...


class TimedEvents:
    """Finds the events that may be delivered now, in topics whose schedule is used.

    Due events are released when a consumer has room for them. Until then they stay in the schedule, which is small.
    """

    def __init__(
        self, topics: Mapping[str, Topic], work: Work, counts: dict[str, int], dates: Dates, delivery: Settling
    ) -> None:
        self._topics = topics
        self._agenda = work.agenda
        self._counts = counts
        self._dates = dates
        self._delivery = delivery
        self._expired_since_tick = 0
        # The number of events that were released at `_released_ms`
        self._released, self._released_ms = 0, 0
        # Subscriptions that got released events since the last tick because another subscription had asked for them
        self._changed: set[Subscription] = set()

    def take_next(self, topic: Topic, subscription: Subscription, most: int, aged: int, now_ms: int) -> list[Taken]:
        """Take up to `most` events as `Backlog.take_next` does, without those that are not due.

        If more events may be found in a later turn, a timer continues then.
        """
        backlog, date_ms = subscription.backlog, self._dates.of(now_ms)
        if now_ms != self._released_ms:
            self._released, self._released_ms = 0, now_ms
        is_busy = self._expired_since_tick >= EXPIRE_MAX or self._released >= RELEASED_AT_ONCE
        left = 0 if is_busy else PASS_MAX
        while left > 0:
            released = self._release(topic, date_ms) if backlog.returned < RELEASE_MAX else 0
            taken, passed = backlog.take_due(most, aged, left)
            if taken or not (passed or released):
                return taken
            left -= passed + released
        self._delivery.timers.start(now_ms + 1, subscription)
        return []

    def without_expired(self, topic: Topic, consumer: Consumer, found: Lines, now_ms: int) -> Lines:
        """Settle those of the events `found` that have expired, and return the others."""
        date_ms, expiring = self._dates.of(now_ms), topic.schedule.expiring
        expired = [
            offset
            for offset, line in zip(*found, strict=True)
            if offset in expiring and (expires_ms := times_of(line)[1]) is not None and expires_ms <= date_ms
        ]
        if not expired:
            return found
        self._expired_since_tick += len(expired) + SETTLING
        self._delivery.settle(consumer, expired)
        consumer.subscription.expired.note(expired)
        self._counts["expired"] += len(expired)
        # They were settled, but no client acked them.
        self._counts["acked"] -= len(expired)
        gone = set(expired)
        kept = [(offset, line) for offset, line in zip(*found, strict=True) if offset not in gone]
        return [offset for offset, _ in kept], [line for _, line in kept]

    def due_subscriptions(self, now_ms: int) -> list[Subscription]:
        """Return the subscriptions that may have due events to deliver. Call it once a tick."""
        found, self._changed, self._expired_since_tick = self._changed, set(), 0
        date_ms = self._dates.of(now_ms)
        for name in list(self._agenda.topics):
            topic = self._topics[name]
            if topic.schedule.is_due(date_ms):
                found.update(topic.subscriptions.values())
                if not topic.subscriptions:
                    topic.schedule.release(date_ms, PASS_MAX)
        return [subscription for subscription in found if subscription.served]

    def _release(self, topic: Topic, date_ms: int) -> int:
        """Release due events in all subscriptions of a topic, since one subscription asks for them.

        Return their number.
        """
        due = topic.schedule.release(date_ms, RELEASE_MAX)
        if due:
            for other in topic.subscriptions.values():
                other.backlog.release(due, other.start)
                self._changed.add(other)
        self._released += len(due)
        return len(due)
