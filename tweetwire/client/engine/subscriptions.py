"""The subscriptions of one client, and the delivery of events to them.

Always true: the client has at most one subscription to a topic, also where patterns match it. The events between the
replies to its ``sub`` and its ``unsub`` belong to it. Other events belong to a subscription that was abandoned before its
reply. They are dropped, and the broker delivers them again.
"""

from collections.abc import Iterator
from functools import partial

from tweetwire.client.engine.commands import LeaveCommand, ResumeCommand
from tweetwire.client.engine.subscription import SubscriptionState
from tweetwire.protocol.errors import BrokerError, SubscriptionEnded
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.notices import read_ended
from tweetwire.protocol.patterns import do_overlap, is_pattern, matches

__all__ = ["SubscriptionTable"]


class SubscriptionTable:
    """The subscriptions of a client, by topic or pattern."""

    def __init__(self) -> None:
        self._by_topic: dict[str, SubscriptionState] = {}
        self._has_abandoned = False

    def __bool__(self) -> bool:
        """Return whether there are subscriptions."""
        return bool(self._by_topic)

    def __iter__(self) -> Iterator[SubscriptionState]:
        return iter(list(self._by_topic.values()))

    def add(self, subscription: SubscriptionState) -> None:
        """Add a subscription. Raises ValueError if the client already has a subscription to its topic or topics."""
        topic = subscription.topic
        for other in self._by_topic:
            if other == topic or ((subscription.is_pattern or is_pattern(other)) and do_overlap(other, topic)):
                raise ValueError(f"this client already has a subscription to {other}; use another client")
        self._by_topic[topic] = subscription

    def remove(self, subscription: SubscriptionState) -> None:
        """Remove a subscription, if it is here."""
        if self._by_topic.get(subscription.topic) is subscription:
            del self._by_topic[subscription.topic]

    def check_other(self, topic: str, name: str) -> None:
        """Raise ValueError if the client itself has the subscription `name`."""
        own = self._by_topic.get(topic)
        if own is not None and own.known_as == name:
            raise ValueError(f"this client has the subscription {name}; end it with unsubscribe(…, end=True)")

    def abandon(self, subscription: SubscriptionState) -> LeaveCommand:
        """Abandon a subscription before its reply. Returns the command that leaves it."""
        self._has_abandoned = True
        return LeaveCommand(subscription.leave_line(end=False))

    def leave_command(self, subscription: SubscriptionState, *, end: bool) -> LeaveCommand:
        """Return the command that leaves a subscription. The subscription ends once the broker has answered."""
        return LeaveCommand(subscription.leave_line(end=end), partial(self._left, subscription, end=end))

    def resume_commands(self) -> list[ResumeCommand]:
        """Return the commands that continue the subscriptions on a new connection.

        A subscription that the broker refuses to continue is removed: a later connection must not take events for it.
        """
        return [ResumeCommand(one.resume_line(), one, partial(self.remove, one)) for one in self if one.known_as]

    def deliver(self, events: list[StoredEvent]) -> None:
        """Deliver events to their subscriptions."""
        if len(self._by_topic) == 1 and not self._has_abandoned:
            next(iter(self._by_topic.values())).deliver(events)
            return
        by_topic: dict[str, list[StoredEvent]] = {}
        for event in events:
            by_topic.setdefault(event.topic, []).append(event)
        for topic, some in by_topic.items():
            subscription = self._of(topic)
            if subscription is not None:
                subscription.deliver(some)

    def note(self, line: bytes) -> None:
        """End the subscription that a notice reports as ended. Other notices are ignored."""
        ended = read_ended(line)
        subscription = None if ended is None else self._by_topic.get(ended.topic)
        if ended is not None and subscription is not None and subscription.known_as == ended.name:
            del self._by_topic[ended.topic]
            subscription.end(SubscriptionEnded(*ended))
        elif ended is not None and (pattern := self._of(ended.topic)) is not None and pattern.known_as == ended.name:
            pattern.leave_topic(ended.topic)

    def fail(self, error: BrokerError) -> None:
        """End all subscriptions with `error`."""
        subscriptions, self._by_topic = self._by_topic, {}
        for subscription in subscriptions.values():
            subscription.end(error)

    def _of(self, topic: str) -> SubscriptionState | None:
        """Return the subscription that has the events of a topic."""
        found = self._by_topic.get(topic)
        if found is None:
            patterns = (one for one in self._by_topic.values() if one.is_pattern and matches(one.topic, topic))
            found = next(patterns, None)
        return found

    def _left(self, subscription: SubscriptionState, *, end: bool) -> None:
        self.remove(subscription)
        if end:
            subscription.forget()
        subscription.end()
