"""Subscribing: how connections are attached to subscriptions and detached.

Always true: a session is attached only to subscriptions that its access allows now. An anonymous subscription is attached
only to the connection that made it.
"""

from typing import Final

from broker.core.access import EVERYTHING, Access
from broker.core.delivery.delivery import Delivery
from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.sessions import Sessions
from broker.core.topic.kept import subscription_record
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.verbs.exactly_once import ExactlyOnce
from broker.core.verbs.finding import ANONYMOUS, check_owner, find_subscription, may_have, not_yours, start_offset
from broker.core.verbs.handler import Handlers
from broker.core.verbs.patterns import PatternSubscribing
from broker.journal.records import PolicyRecord, UnsubscribedRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.notices import Ended, ended_line
from tweetwire.protocol.patterns import is_pattern
from tweetwire.protocol.policy import DEFAULT_POLICY
from tweetwire.protocol.verbs import subscribing as commands

__all__ = ["Subscribing"]

SUBSCRIPTIONS_MAX: Final = 100_000


class Subscribing:
    """Attaches connections to subscriptions and detaches them. Missing subscriptions are created."""

    def __init__(
        self,
        desk: Desk,
        delivery: Delivery,
        sessions: Sessions,
        exactly_once: ExactlyOnce,
        patterns: PatternSubscribing,
    ) -> None:
        self._patterns = patterns
        self._desk = desk
        self._delivery = delivery
        self._sessions = sessions
        self._exactly_once = exactly_once
        self.handlers: Handlers = {
            commands.Subscribe: self.subscribe,
            commands.Unsubscribe: self.unsubscribe,
        }

    def subscribe(self, session: Session, command: commands.Subscribe, now_ms: int) -> None:
        """Attach a connection to a subscription, creating it if it is missing."""
        topics = self._desk.topics
        if not command.may_create and topics.makes_unknown and command.topic not in topics.by_name:
            raise Refusal(
                "unknown_topic",
                f"there is no topic {command.topic}; to make it, add create: sub {command.topic} create",
            )
        topic = topics.find_or_make(command.topic)
        name = command.name or f"conn-{session.number}"
        if command.begins and (consumer := session.consumer_of(topic.name, name)) is not None:
            consumer.promise_begin()
        subscription = topic.subscriptions.get(name)
        _check_name(session, command, subscription)
        if subscription is None:
            subscription = self._make(session, topic, name, command, now_ms)
        elif not may_have(session, subscription):
            raise not_yours(session, subscription)
        elif command.change:
            subscription.change_policy(subscription.policy.changed(command.change), topic.lanes)
            if subscription.is_durable:
                self._desk.work.keep(PolicyRecord(topic.name, name, subscription.policy))
            self._delivery.pump(subscription, now_ms)
        self._attach(session, topic, subscription, command.prefetch, now_ms, begins=command.begins)

    def unsubscribe(self, session: Session, command: commands.Unsubscribe, now_ms: int) -> None:
        """Detach a connection from a subscription, or end the subscription for all connections."""
        topic = self._desk.topics.find(command.topic)
        if command.is_end and command.name is not None:
            self._end_for_all(session, topic, find_subscription(session, topic, command.name))
        else:
            self._leave(session, topic, command.name, now_ms)
        self._desk.reply(session, f"+OK unsub {topic.name}")

    def grant(self, session: Session, access: Access, now_ms: int) -> None:
        """Replace a session's permissions, and detach it from the subscriptions that it may no longer use."""
        session.access = access
        for consumer in list(session.consumers.values()):
            if not may_have(session, consumer.subscription):
                self._detach(session, consumer, now_ms)
                self._notify_forbidden(session, consumer.subscription)
        self._patterns.ends.drop_forbidden(session, now_ms)
        self._sessions.note_attached(session)

    def leave_all(self, session: Session, now_ms: int, *, is_failure: bool) -> None:
        """Detach a connection that ends, and return the events that it has in flight."""
        for consumer in list(session.consumers.values()):
            self._delivery.detach(consumer, now_ms, is_failure=is_failure)
        session.consumers.clear()
        self._patterns.ends.leave_all(session, now_ms, is_failure=is_failure)

    def resume_attached(self, session: Session, now_ms: int) -> None:
        """Attach a named client to the durable subscriptions that it had when it left."""
        for topic, name, prefetch in self._sessions.attached(session.name):
            if is_pattern(topic):
                self._patterns.resume(session, topic, name, prefetch, now_ms)
            else:
                self._resume(session, topic, name, prefetch, now_ms)

    def _resume(self, session: Session, topic_name: str, name: str, prefetch: int, now_ms: int) -> None:
        topic = self._desk.topics.by_name.get(topic_name)
        subscription = None if topic is None else topic.subscriptions.get(name)
        if topic is None or subscription is None or not subscription.is_durable:
            return
        if may_have(session, subscription):
            self._attach(session, topic, subscription, prefetch, now_ms)
        else:
            self._notify_forbidden(session, subscription)

    def _notify_forbidden(self, session: Session, subscription: Subscription) -> None:
        reason = f"{session.access.user} may no longer use it"
        self._desk.notify(session, ended_line(Ended(subscription.topic, subscription.name, reason)))

    def forget_topic(self, topic: str) -> None:
        """Forget which clients and patterns had subscriptions to a dropped topic. The record of the drop implies this."""
        self._sessions.forget_topic(topic)
        self._patterns.table.forget_topic(topic)

    def _make(
        self, session: Session, topic: Topic, name: str, command: commands.Subscribe, now_ms: int
    ) -> Subscription:
        if len(topic.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise Refusal("too_many", f"{topic.name} has {SUBSCRIPTIONS_MAX} subscriptions")
        start, policy = start_offset(topic, command.start, now_ms), DEFAULT_POLICY.changed(command.change)
        subscription = topic.subscribe(name, start, policy, is_durable=command.name is not None)
        if subscription.is_durable:
            if session.access is not EVERYTHING:
                subscription.owners = (str(session.access.user),)
            self._desk.work.keep(subscription_record(subscription, topic.visible))
        return subscription

    def _attach(
        self,
        session: Session,
        topic: Topic,
        subscription: Subscription,
        prefetch: int,
        now_ms: int,
        *,
        begins: bool = False,
    ) -> None:
        consumer = session.consumer_of(topic.name, subscription.name)
        if consumer is None:
            consumer = session.consumers[topic.name, subscription.name] = Consumer(session, subscription, prefetch)
            if begins:
                consumer.promise_begin()
            subscription.consumers.append(consumer)
            self._exactly_once.attach(consumer)
        consumer.prefetch = prefetch
        self._claim(session, subscription)
        self._sessions.note_attached(session)
        self._desk.reply(
            session,
            f"+OK sub {topic.name} as={subscription.name} from={subscription.start}"
            f" pending={subscription.waiting} prefetch={prefetch}",
        )
        self._delivery.pump(subscription, now_ms)

    def _claim(self, session: Session, subscription: Subscription) -> None:
        """Give a durable subscription without owners to the user that attaches, unless the user is an administrator.

        Such a subscription was made in a broker without users, or by an older version that kept no owners. Users whose last
        connection was attached to it become owners, too, so that they can still share it.
        """
        access = session.access
        if access.is_admin or subscription.owners or not subscription.is_durable:
            return
        before = self._sessions.attached_to(subscription.topic, subscription.name)
        subscription.owners = tuple(dict.fromkeys((str(access.user), *before)))
        # Keep the whole subscription record, since older versions can read it.
        topic = self._desk.topics.by_name[subscription.topic]
        self._desk.work.keep(subscription_record(subscription, topic.visible))

    def _leave(self, session: Session, topic: Topic, name: str | None, now_ms: int) -> None:
        """Detach a connection. A durable subscription stays, an anonymous one ends."""
        mine = [one for one in session.consumers_of(topic.name) if name in {None, one.subscription.name}]
        if not mine:
            raise _not_attached(topic, name)
        self._detach(session, mine[0], now_ms)

    def _detach(self, session: Session, consumer: Consumer, now_ms: int) -> None:
        session.remove_consumer(consumer)
        self._sessions.note_attached(session)
        self._delivery.detach(consumer, now_ms, is_failure=False)

    def _end_for_all(self, session: Session, topic: Topic, subscription: Subscription) -> None:
        """End a subscription, and notify every other connection that has it."""
        check_owner(session, subscription)
        pattern = self._patterns.table.of_subscription(topic.name, subscription.name)
        if pattern is not None:
            raise Refusal(
                "bad_arguments",
                f"{subscription.name} is a subscription to {pattern.topic}; to end it: unsub {pattern.topic}"
                f" as={subscription.name} end",
            )
        lost = self.end(topic, subscription, f"{session.name} ended the subscription", actor=session)
        for one in lost:
            self._sessions.note_attached(one)
        self._exactly_once.forget_subscription(topic.name, subscription.name)

    def end(
        self, topic: Topic, subscription: Subscription, reason: str, *, actor: Session | None = None
    ) -> list[Session]:
        """End a subscription and notify its sessions, except `actor`. Returns the sessions that have lost it.

        A record is kept if the end of the subscription is an act of `actor`; the end of a topic has its own record.
        """
        name = subscription.name
        topic.end_subscription(name)
        notice = ended_line(Ended(topic.name, name, reason))
        lost: list[Session] = []
        for consumer in list(subscription.consumers):
            self._delivery.discard(consumer)
            other = self._sessions.by_number.get(consumer.session.number)
            # While failed tries are counted, a session that has ended still has its consumer. It must not be kept.
            if other is not None and other.consumer_of(topic.name, name) is consumer:
                other.remove_consumer(consumer)
                lost.append(other)
                if other is not actor:
                    self._desk.notify(other, notice)
        if subscription.is_durable and actor is not None:
            self._desk.work.keep(UnsubscribedRecord(topic.name, name))
        self._delivery.retire(subscription)
        return lost


def _check_name(session: Session, command: commands.Subscribe, found: Subscription | None) -> None:
    """Raise Refusal if a durable subscription would have the name of an anonymous one, which the broker has named."""
    if command.name is None:
        if found is not None and found.is_durable:
            raise Refusal(
                "bad_name", f"a durable subscription has this connection's name {found.name}; name one with as="
            )
    elif found is None or not found.is_durable:
        is_own = found is not None and session.is_attached_to(found.topic, found.name)
        if ANONYMOUS.fullmatch(command.name) and not is_own:
            raise Refusal(
                "bad_name", f"{command.name}: names like conn-1 belong to anonymous subscriptions; choose another"
            )


def _not_attached(topic: Topic, name: str | None) -> Refusal:
    if name is None:
        return Refusal("not_subscribed", f"this connection has no subscription to {topic.name}")
    text = f"this connection has no subscription {name} to {topic.name}"
    named = topic.subscriptions.get(name)
    if named is None or not named.is_durable:
        return Refusal("not_subscribed", text)
    return Refusal("not_subscribed", f"{text}; to end it for all: unsub {topic.name} as={name} end")
