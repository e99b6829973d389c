"""The state of one subscription: the lines that make, resume and leave it, and its events."""

from collections.abc import Iterable, Sequence

from tweetwire.protocol.errors import BrokerError
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.patterns import is_pattern
from tweetwire.protocol.requests import Start, SubscribeRequest

__all__ = ["SubscriptionState"]


class SubscriptionState:
    """One subscription of a client, over all the client's connections. Each client derives its public class from this.

    Attributes:
        known_as: The broker's name for the subscription.
        is_pattern: Whether `topic` is a pattern, so that the events have several topics.
        stale: Number of events that were acked, nacked or begun too late.
        refused: Number of events whose ack, nack or begin the broker refused for another reason.
    """

    def __init__(self, request: SubscribeRequest, start: Start) -> None:
        self.topic = request.topic
        self.name = request.name
        self.is_pattern = is_pattern(request.topic)
        self.stale = 0
        self.refused = 0
        self.known_as = ""
        self._request = request
        self._start = start
        self._next = -1
        self._is_attached = False
        self._events: list[StoredEvent] = []
        self._has_ended = False
        self._error: BrokerError | None = None

    def subscribe_line(self) -> bytes:
        """Return the command that makes the subscription."""
        return self._request.line(self._start)

    def resume_line(self) -> bytes:
        """Detach the subscription, and return the command that continues it on a new connection.

        A durable subscription gets its unacked events again. Any other subscription ended with its connection, so a new one
        starts after the newest event handed over.
        """
        # Events that still wait here are dropped, so that the new subscription must deliver them again.
        self._next = min((event.offset for event in self._events if event.attempt == 1), default=self._next)
        self.detach()
        if self.name is not None or self._next < 0:
            return self._request.line(self._start)
        # A pattern has no offset to continue from.
        return self._request.line("latest" if self.is_pattern else self._next)

    def leave_line(self, *, end: bool) -> bytes:
        """Return the command that leaves the subscription, or with `end`, ends it for all members."""
        return self._request.leave_line(end=end)

    def begin(self, known_as: str) -> None:
        """Note that the broker has made or resumed the subscription. Its events come after this. Called by the engine."""
        self.known_as = known_as
        self._is_attached = True

    def deliver(self, events: list[StoredEvent]) -> None:
        """Take events. Called by the engine.

        Before `begin`, they are dropped: they belong to a subscription that was left.
        """
        if self._is_attached:
            self._arrive(events)

    def leave_topic(self, topic: str) -> None:
        """Drop the events of a topic that has left the subscription's pattern. Called by the engine."""
        self._events = [event for event in self._events if event.topic != topic]

    def detach(self) -> None:
        """Note that the connection is lost, and drop the events in flight. Called by the engine."""
        self._is_attached = False
        self._events = []

    def end(self, error: BrokerError | None = None) -> None:
        """End the subscription, with an error if it cannot continue. Called by the engine."""
        self._is_attached = False
        self._has_ended, self._error = True, error
        if error is not None:
            # These events are no longer in flight here, so the broker would not take their acks.
            self._events = []
        self._changed()

    def forget(self) -> None:
        """Drop stored data, because the broker has ended the subscription for all members. Called by the engine."""

    def _arrive(self, events: list[StoredEvent]) -> None:
        self._next = max(self._next, events[-1].offset + 1)
        self._keep(events)
        # At most `prefetch` events are in flight here. If the queue is longer, its oldest events have timed out.
        if len(self._events) > self._request.prefetch:
            del self._events[: -self._request.prefetch]

    def _keep(self, events: list[StoredEvent]) -> None:
        self._events += events
        self._changed()

    def _by_topic(self, events: Sequence[StoredEvent]) -> Iterable[tuple[str, list[int]]]:
        """Return the offsets of events by topic."""
        if not self.is_pattern:
            return [(self.topic, [event.offset for event in events])]
        by_topic: dict[str, list[int]] = {}
        for event in events:
            by_topic.setdefault(event.topic, []).append(event.offset)
        return by_topic.items()

    def _take_events(self) -> list[StoredEvent]:
        batch, self._events = self._events, []
        return batch

    def _changed(self) -> None:
        """Note that events can be taken or the subscription has ended (overridden by each client)."""
