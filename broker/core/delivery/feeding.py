"""Give events to the consumers of pattern subscriptions: round-robin over their topics, within the prefetch that they share.

A consumer whose turn it is gets an equal part of the room, so that a topic with a large backlog delays the others by one turn
at most.
"""

from collections.abc import Mapping
from typing import Any, Final

from broker.core.delivery.handing import Handing
from broker.core.delivery.timers import Timers
from broker.core.topic.ordered_backlog import OrderedBacklog
from broker.core.topic.share import Share
from broker.core.topic.subscription import Consumer
from broker.core.topic.topic import Topic

__all__ = ["Feeding"]

TURNS_AT_ONCE: Final = 200
"""How many topics of a share have their turn before other work continues. That takes a few milliseconds."""


class Feeding:
    """Serves the shares that have room and consumers with waiting events. `due` has these shares."""

    def __init__(self, topics: Mapping[str, Topic], timers: Timers[Any], handing: Handing) -> None:
        self.due: dict[Share[Consumer], None] = {}
        self._topics = topics
        self._timers = timers
        self._handing = handing

    def feed_due(self, now_ms: int) -> None:
        """Serve each share that is due."""
        while self.due:
            share = next(iter(self.due))
            del self.due[share]
            self.feed(share, now_ms)

    def feed(self, share: Share[Consumer], now_ms: int) -> None:
        """Serve the consumers of a share in their order. A timer later serves the consumers that had no turn."""
        queue = share.queue
        turn = max(1, share.room // max(1, len(queue)))
        for _ in range(TURNS_AT_ONCE):
            if not queue or share.room <= 0:
                return
            consumer = next(iter(queue))
            if not consumer.session.outbox.has_room:
                return
            del queue[consumer]
            subscription = consumer.subscription
            room = min(consumer.room, turn)
            # A consumer that was replaced or detached is no longer a member.
            if room <= 0 or not subscription.served or share.members.get(subscription.topic) is not consumer:
                continue
            topic = self._topics[subscription.topic]
            if isinstance(subscription.backlog, OrderedBacklog):
                self._handing.ordered.pump(topic, subscription, subscription.backlog, now_ms)
                continue
            aged = self._handing.aged(topic, subscription, now_ms)
            taken = self._handing.take_next(topic, subscription, room, aged, now_ms)
            if taken:
                self._handing.hand_over(topic, consumer, taken, now_ms)
                queue[consumer] = None
        self._timers.start(now_ms + 1, share)
