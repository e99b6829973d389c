"""Settling: events in flight are acked, nacked, begun or extended, and dead events are redriven."""

from msgspec import structs

from broker.core.delivery.delivery import Delivery
from broker.core.delivery.redrives import PacedRedrive
from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.steps import Outcome, Steps
from broker.core.topic.subscription import Subscription
from broker.core.verbs.dead_refs import dead_offsets, look_up_dead
from broker.core.verbs.finding import find_subscription
from broker.core.verbs.handler import Handlers
from broker.core.verbs.references import References, consumers_on, stale
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.failures import Failure
from tweetwire.protocol.verbs import settling as commands

__all__ = ["Settling"]


class Settling:
    """Settles, fails, begins, extends and redrives events."""

    def __init__(self, desk: Desk, delivery: Delivery, references: References) -> None:
        self._desk = desk
        self._delivery = delivery
        self._references = references
        self.handlers: Handlers = {
            commands.Ack: self.ack,
            commands.Begin: self.begin,
            commands.Nack: self.nack,
            commands.Extend: self.extend,
            commands.Redrive: self.redrive,
        }

    def ack(self, session: Session, command: commands.Ack, now_ms: int) -> None:
        """Settle events."""
        topic, offsets = command.topic, command.offsets
        if offsets is None and self._references.is_learning(
            session, topic, command.refs, lambda: self.ack(session, command, now_ms)
        ):
            return
        consumers = consumers_on(session, topic)
        settled = 0
        if offsets is not None and len(consumers) == 1:
            settled = self._delivery.settle(consumers[0], offsets)
        else:
            for consumer, offset in self._references.meant(consumers, offsets or command.refs):
                settled += self._delivery.settle(consumer, [offset])
        if not settled:
            raise stale()
        if not session.is_quiet:
            self._desk.reply(session, f"+OK ack {topic} {settled}")
        for consumer in consumers:
            consumer.heard_ms = now_ms
            self._delivery.pump(consumer.subscription, now_ms)

    def begin(self, session: Session, command: commands.Begin, now_ms: int) -> None:
        """Note that the client works on events from now on."""
        topic, offsets = command.topic, command.offsets
        if offsets is None and self._references.is_learning(
            session, topic, command.refs, lambda: self.begin(session, command, now_ms)
        ):
            return
        consumers = [consumer for consumer in consumers_on(session, topic) if consumer.promise is not None]
        if not consumers:
            raise Refusal("bad_arguments", f"begin is for subscriptions made with begins: sub {topic} ... begins")
        begun = 0
        if offsets is not None and len(consumers) == 1:
            begun = self._delivery.begin_events(consumers[0], offsets, now_ms)
        else:
            for consumer, offset in self._references.meant(consumers, offsets or command.refs):
                begun += self._delivery.begin_events(consumer, [offset], now_ms)
        if not begun:
            raise stale()
        if not session.is_quiet:
            self._desk.reply(session, f"+OK begin {topic} {begun}")

    def nack(self, session: Session, command: commands.Nack, now_ms: int) -> None:
        """Count a failed try of an event."""
        topic = command.topic
        if self._references.is_learning(session, topic, [command.ref], lambda: self.nack(session, command, now_ms)):
            return
        failure = Failure(
            self._desk.dates.of(now_ms), "nack", session.name, command.message, command.code, command.trace
        )
        for consumer, offset in self._references.meant(consumers_on(session, topic), [command.ref]):
            self._delivery.fail(consumer, [offset], failure, now_ms)
            consumer.heard_ms = now_ms
            if not session.is_quiet:
                self._desk.reply(session, f"+OK nack {topic} 1")
            self._delivery.pump(consumer.subscription, now_ms)
            return
        raise stale()

    def extend(self, session: Session, command: commands.Extend, now_ms: int) -> None:
        """Restart the timeouts of events."""
        topic, refs = command.topic, command.refs
        if self._references.is_learning(session, topic, refs, lambda: self.extend(session, command, now_ms)):
            return
        extended = 0
        for consumer, offset in self._references.meant(consumers_on(session, topic), refs):
            self._delivery.extend_deadline(consumer, offset, now_ms)
            extended += 1
        if not extended:
            raise stale()
        self._desk.reply(session, f"+OK extend {topic} {extended}")

    def redrive(self, session: Session, command: commands.Redrive, now_ms: int) -> None:
        """Return dead events to their subscription."""
        if any(isinstance(ref, str) for ref in command.refs or ()):
            subscription = self._subscription(session, command)
            self._desk.begin_job(session, self._redrive_by_id(session, command, subscription, now_ms))
        else:
            self._redrive_offsets(session, command, now_ms)

    def _redrive_offsets(self, session: Session, command: commands.Redrive, now_ms: int) -> None:
        subscription = self._subscription(session, command)
        offsets = dead_offsets(subscription, command.refs)
        self._desk.topics.check_room()
        self._desk.reply(session, f"+OK redrive {command.topic} {len(offsets)}")
        self._delivery.redrive(PacedRedrive(subscription, offsets, command.rate), now_ms)

    def _redrive_by_id(
        self, session: Session, command: commands.Redrive, subscription: Subscription, now_ms: int
    ) -> Steps[Outcome]:
        """Find dead events by their ids, and redrive them."""
        refs = yield from look_up_dead(self._desk.topics.by_name[subscription.topic], subscription, command.refs)
        return lambda: self._redrive_offsets(session, structs.replace(command, refs=refs), now_ms)

    def _subscription(self, session: Session, command: commands.Redrive) -> Subscription:
        return find_subscription(session, self._desk.topics.find(command.topic), command.name)
