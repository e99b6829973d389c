"""The ends of pattern subscriptions: ``unsub`` of a pattern, lost connections and permissions.

With ``end``, the subscriptions of the pattern end on all its topics, in steps. Once the command has arrived, the broker
delivers no more events of the pattern.
"""

from typing import Final

from broker.core.delivery.delivery import Delivery
from broker.core.delivery.failing import SHARE
from broker.core.delivery.redrives import STEP_MS
from broker.core.desk import Desk
from broker.core.patterns import Pattern, Patterns
from broker.core.session import Session
from broker.core.sessions import Sessions
from broker.core.steps import Outcome, Steps
from broker.core.topic.share import Share
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.verbs.exactly_once import ExactlyOnce
from broker.core.verbs.finding import may_have, not_yours
from broker.journal.pattern_records import EndedPatternRecord
from broker.journal.records import UnsubscribedRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.notices import Ended, ended_line
from tweetwire.protocol.verbs import subscribing as commands

__all__ = ["PatternEnds"]

TOPICS_A_SLICE: Final = 20


class PatternEnds:
    """Detaches connections from the pattern subscriptions of `table`, and ends these."""

    def __init__(
        self, table: Patterns, desk: Desk, delivery: Delivery, sessions: Sessions, exactly_once: ExactlyOnce
    ) -> None:
        self._table = table
        self._desk = desk
        self._delivery = delivery
        self._sessions = sessions
        self._exactly_once = exactly_once

    def unsubscribe(self, session: Session, command: commands.UnsubscribePattern, now_ms: int) -> None:
        """Detach a connection from a pattern subscription, or end that for all connections."""
        found = [
            share
            for share in session.shares.values()
            if share.key[0] == command.pattern and command.name in {None, share.key[1]}
        ]
        if command.is_end and command.name is not None:
            pattern = self._table.by_key.get((command.pattern, command.name))
            if pattern is None or not (pattern.is_durable or found):
                raise Refusal("not_subscribed", f"there is no subscription {command.name} to {command.pattern}")
            if not session.access.owns(pattern):
                raise not_yours(session, pattern)
            self._desk.begin_job(session, self._end(session, pattern), outlives=True)
        elif not found:
            raise Refusal("not_subscribed", f"this connection has no subscription to {command.pattern}")
        elif not found[0].is_durable:
            self._desk.begin_job(session, self._end(session, self._table.by_key[found[0].key]), outlives=True)
        else:
            self.leave(session, found[0], now_ms, is_failure=False)
            self._sessions.note_attached(session)
            self._desk.reply(session, f"+OK unsub {command.pattern}")

    def leave_all(self, session: Session, now_ms: int, *, is_failure: bool) -> None:
        """Detach a connection that ends from all its pattern subscriptions."""
        for share in list(session.shares.values()):
            self.leave(session, share, now_ms, is_failure=is_failure)

    def drop_forbidden(self, session: Session, now_ms: int) -> None:
        """Detach a connection from the pattern subscriptions and the topics that it may no longer use."""
        for share in list(session.shares.values()):
            if share.is_durable and not session.access.may_use(self._table.by_key[share.key]):
                self.leave(session, share, now_ms, is_failure=False)
                self.notify_forbidden(session, share.key)
                continue
            for topic, consumer in list(share.members.items()):
                if not may_have(session, consumer.subscription):
                    del share.members[topic]
                    self._delivery.detach(consumer, now_ms, is_failure=False)
                    self.notify_forbidden(session, (topic, share.key[1]))

    def leave(self, session: Session, share: Share[Consumer], now_ms: int, *, is_failure: bool) -> None:
        """Detach the consumers of a share. If many events are in flight with them, they are given back in parts."""
        pattern = self._table.by_key[share.key]
        share.close()
        del session.shares[share.key], pattern.shares[session]
        if not pattern.is_durable:
            # No command asks for this, so it has no reply.
            steps = self._end(session, pattern, is_command=False)
            self._desk.begin_job(session, steps, is_awaited=False, outlives=True)
            return
        counted = 0
        for consumer in share.members.values():
            if consumer.in_flight:
                pause_ms = counted // SHARE * STEP_MS
                counted += len(consumer.in_flight)
                self._delivery.detach(consumer, now_ms, is_failure=is_failure, pause_ms=pause_ms)
            else:
                consumer.prefetch = 0
                consumer.subscription.consumers.remove(consumer)
        # Break the reference cycle between the share and its consumers.
        share.members.clear()

    def _end(self, session: Session, pattern: Pattern, *, is_command: bool = True) -> Steps[Outcome]:
        """Return the steps that end a pattern and its subscriptions. From now on, it gets no events and no further topics."""
        del self._table.by_key[pattern.key]
        for other, share in pattern.shares.items():
            share.close()
            share.members.clear()
            del other.shares[pattern.key]
            self._sessions.note_attached(other)
            if other is not session:
                self._desk.notify(other, ended_line(Ended(*pattern.key, _reason(session))))
        record = 0
        if pattern.is_durable:
            self._table.ending.add(pattern)
            record = self._desk.work.keep(EndedPatternRecord(*pattern.key))
        return self._end_subscriptions(session, pattern, record, is_command=is_command)

    def _end_subscriptions(
        self, session: Session, pattern: Pattern, record: int, *, is_command: bool
    ) -> Steps[Outcome]:
        for number, name in enumerate(pattern.topics, 1):
            topic = self._desk.topics.by_name.get(name)
            subscription = None if topic is None else topic.subscriptions.get(pattern.name)
            if topic is not None and subscription is not None:
                self._end_on(topic, subscription, _reason(session))
                if pattern.is_durable:
                    record = self._desk.work.keep(UnsubscribedRecord(name, pattern.name))
            if number % TOPICS_A_SLICE == 0:
                yield None
        self._table.ending.discard(pattern)
        if not is_command:
            return b""
        return lambda: self._desk.reply_after_record(session, record, f"+OK unsub {pattern.topic}")

    def _end_on(self, topic: Topic, subscription: Subscription, reason: str) -> None:
        """End a pattern's subscription on one topic, and notify the sessions that were attached only to it."""
        topic.end_subscription(subscription.name)
        for consumer in list(subscription.consumers):
            self._delivery.discard(consumer)
            session = self._sessions.by_number.get(consumer.session.number)
            if session is not None and session.consumers.get((topic.name, subscription.name)) is consumer:
                session.remove_consumer(consumer)
                self._desk.notify(session, ended_line(Ended(topic.name, subscription.name, reason)))
                self._sessions.note_attached(session)
        if subscription.policy.qos == 2:
            self._exactly_once.forget_subscription(topic.name, subscription.name)
        self._delivery.retire(subscription)

    def notify_forbidden(self, session: Session, key: tuple[str, str]) -> None:
        """Notify a connection that its user may no longer use a subscription (topic or pattern, name)."""
        self._desk.notify(session, ended_line(Ended(*key, f"{session.access.user} may no longer use it")))


def _reason(session: Session) -> str:
    return f"{session.name} ended the subscription"
