"""Decide which events of a consumer that promises to ``begin`` have a failed try when it is lost or silent.

The promise lets the broker distinguish an event that a client works on from one that only waits at the client. When the client
is lost, only the events that it has begun have a failed try. Sending ``begin`` before the work costs time, so the broker asks
for it only where it makes a difference:

- All events that a consumer had when it was lost become suspects. They are delivered again as suspects, and a client begins
  each suspect before it works on it. So if a client is lost before it begins any event, no event has a failed try. The next
  loss then shows which event is the reason.
- An event may crash a client as soon as it arrives. If two clients in a row are lost before they begin anything, with the same
  suspect first, that suspect has a failed try. So it becomes a dead letter in the end.

A client that promises, and then neither begins nor settles anything, loses its events. It loses all of them once it has been
silent for the subscription's ``timeout`` with nothing begun. It loses each event at the latest after one ``timeout`` for that
event and for each event before it.
"""

from typing import NamedTuple

from broker.core.topic.promise import Promise
from broker.core.topic.subscription import Consumer

__all__ = ["Loss", "Watch", "lose_unbegun", "lost_with"]


class Loss(NamedTuple):
    """The events that a consumer loses before it began them.

    Those in `failed` have a failed try. Those in `returned` wait again.
    """

    failed: list[int]
    returned: list[int]


class Watch:
    """Decides when a consumer that promises to ``begin`` its events has been silent for too long."""

    __slots__ = ("consumer", "promise")

    def __init__(self, consumer: Consumer, promise: Promise) -> None:
        self.consumer = consumer
        self.promise = promise

    def due_ms(self, now_ms: int) -> int | None:
        """Return the time (ms) at which the consumer has been silent for too long, None while it has no events."""
        consumer = self.consumer
        if not consumer.in_flight:
            return None
        since = now_ms if self.promise.begun else consumer.heard_ms
        return since + consumer.subscription.policy.timeout_ms

    def loss(self, now_ms: int) -> Loss:
        """Decide which events the consumer loses now."""
        consumer = self.consumer
        due_ms = self.due_ms(now_ms)
        if due_ms is not None and due_ms <= now_ms:
            return lose_unbegun(consumer, self.promise)
        overdue = self.promise.overdue(now_ms)
        consumer.subscription.suspects.add(overdue, were_begun=False)
        return Loss([], overdue)


def lose_unbegun(consumer: Consumer, promise: Promise) -> Loss:
    """Make suspects of a consumer's unbegun events, and decide which of them has a failed try."""
    unbegun, suspects = list(promise.unbegun), consumer.subscription.suspects
    is_first_again = bool(unbegun) and not promise.begun and suspects.was_lost_unbegun(unbegun[0])
    suspects.add(unbegun, were_begun=False)
    return Loss(unbegun[:1], unbegun[1:]) if is_first_again else Loss([], unbegun)


def lost_with(consumer: Consumer) -> list[int]:
    """Return the events that have a failed try because their consumer is lost.

    If the consumer promised to ``begin`` its events, all its events in flight become suspects.
    """
    if consumer.promise is None:
        return list(consumer.in_flight)
    begun = consumer.promise.begun_in_order()
    consumer.subscription.suspects.add(begun, were_begun=True)
    return [*begun, *lose_unbegun(consumer, consumer.promise).failed]
