"""Pattern subscriptions: ``sub`` of a pattern, and topics that are created later.

A pattern subscription is an ordinary subscription with its name on each topic, and for each connection a `Share` of the
prefetch. So offsets, acks, dead letters and ``seek`` work for each topic as always. Always true:

- a topic that is created gets the subscription at once, so no event of it is missed;
- a connection is attached only to subscriptions that its access allows now.
"""

from collections.abc import Iterable
from typing import Final

from broker.core.access import EVERYTHING, Access
from broker.core.delivery.delivery import Delivery
from broker.core.desk import Desk
from broker.core.patterns import Pattern, Patterns
from broker.core.session import Session
from broker.core.sessions import Sessions
from broker.core.steps import Outcome, Steps
from broker.core.topic.kept import subscription_record
from broker.core.topic.share import Share
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.verbs.exactly_once import ExactlyOnce
from broker.core.verbs.finding import ANONYMOUS, may_have, not_yours, start_offset
from broker.core.verbs.handler import Handlers
from broker.core.verbs.pattern_ends import PatternEnds
from broker.journal.pattern_records import EndedPatternRecord, PatternRecord
from broker.journal.records import HandshakeRecord, PolicyRecord, Record, TopicRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.policy import DEFAULT_POLICY
from tweetwire.protocol.verbs import subscribing as commands

__all__ = ["PatternSubscribing"]

READ_AT_ONCE: Final = 10_000
"""If a subscription begins more than this many events back, a thread reads their priorities.

Fewer take microseconds.
"""


class PatternSubscribing:
    """Attaches connections to pattern subscriptions. Missing ones are created."""

    def __init__(self, desk: Desk, delivery: Delivery, sessions: Sessions, exactly_once: ExactlyOnce) -> None:
        self.table = Patterns()
        self.ends = PatternEnds(self.table, desk, delivery, sessions, exactly_once)
        self._desk = desk
        self._delivery = delivery
        self._sessions = sessions
        self._exactly_once = exactly_once
        # The records of patterns that a start has read, until `restore`
        self._kept: dict[tuple[str, str], PatternRecord] = {}
        desk.topics.when_made = self.note_made
        self.handlers: Handlers = {
            commands.SubscribePattern: self.subscribe,
            commands.UnsubscribePattern: self.ends.unsubscribe,
        }

    def subscribe(self, session: Session, command: commands.SubscribePattern, now_ms: int) -> None:
        """Attach a connection to a pattern subscription, creating it if it is missing."""
        if command.name is not None and ANONYMOUS.fullmatch(command.name):
            raise Refusal(
                "bad_name", f"{command.name}: names like conn-1 belong to anonymous subscriptions; choose another"
            )
        pattern = self.table.by_key.get((command.pattern, command.name or session.own_name))
        if pattern is not None and not session.access.may_use(pattern):
            raise not_yours(session, pattern)
        if pattern is None and command.name is not None:
            self._desk.topics.check_room()
        self._desk.begin_job(session, self._attach(session, command, now_ms, is_resumed=False))

    def resume(self, session: Session, pattern: str, name: str, prefetch: int, now_ms: int) -> None:
        """Attach a connection again to a pattern subscription, if that still exists."""
        found = self.table.by_key.get((pattern, name))
        if found is None:
            return
        if session.access.may_use(found):
            command = commands.SubscribePattern(pattern, name, prefetch, "latest", {})
            self._desk.begin_job(session, self._attach(session, command, now_ms, is_resumed=True))
        else:
            self.ends.notify_forbidden(session, found.key)

    def note_made(self, topic: Topic) -> None:
        """Add a new topic to the patterns that take it, and attach their connections."""
        taking = self.table.taking(topic.name)
        room = self.table.room if taking else 0
        for pattern in taking:
            places = 1 + len(pattern.shares)
            if places > room:
                self._desk.counts["pattern_topics_left_out"] += 1
                continue
            room -= places
            subscription = topic.subscriptions.get(pattern.name)
            if subscription is None:
                subscription = self._make(pattern, topic, topic.log.earliest)
            for session, share in pattern.shares.items():
                self._join(session, share, subscription)

    # The state of a start

    def take_records(self, records: Iterable[Record]) -> list[TopicRecord | HandshakeRecord]:
        """Take the records of patterns out of `records`, for `restore`. Returns the other records."""
        others: list[TopicRecord | HandshakeRecord] = []
        for record in records:
            if isinstance(record, PatternRecord):
                self._kept[record.pattern, record.name] = record
            elif isinstance(record, EndedPatternRecord):
                self._kept.pop((record.pattern, record.name), None)
            else:
                others.append(record)
        return others

    def restore(self) -> None:
        """Restore the patterns, after the subscriptions of their topics."""
        kept, self._kept = self._kept, {}
        for record in kept.values():
            pattern = Pattern(record.pattern, record.name, record.policy, tuple(record.reads), is_durable=True)
            pattern.owners, pattern.is_whole, pattern.is_kept = tuple(record.owners), True, True
            self.table.by_key[pattern.key] = pattern
            for topic in filter(lambda topic: pattern.takes(topic.name), self._desk.topics):
                found = topic.subscriptions.get(pattern.name)
                if found is None:
                    # The topic was created after the pattern, and the crash lost the record of its subscription.
                    self._make(pattern, topic, topic.log.earliest)
                elif not (found.owners and pattern.owners) or set(found.owners) & set(pattern.owners):
                    pattern.topics.add(topic.name)

    # Attaching in steps

    def _attach(
        self, session: Session, command: commands.SubscribePattern, now_ms: int, *, is_resumed: bool
    ) -> Steps[Outcome]:
        """Attach a connection to the subscription of each topic that matches, in steps. Nothing is delivered until the end."""
        yield from self._check(session, command, is_resumed=is_resumed)
        pattern = self._find_or_add(session, command)
        is_new, is_done = pattern.key not in session.shares, False
        share = self._share_of(session, pattern)
        pending = 0
        try:
            for topic in list(self._desk.topics):
                if pattern.takes(topic.name):
                    pending += yield from self._attach_topic(session, command, pattern, topic, now_ms)
                yield None
            if session.shares.get(pattern.key) is not share:
                raise Refusal("not_subscribed", f"the subscription to {pattern.topic} was ended meanwhile")
            pattern.is_whole = is_done = True
        finally:
            if not is_done:
                self._undo(session, pattern, share if is_new else None, now_ms)
        if pattern.is_durable and not pattern.is_kept:
            self._desk.work.keep(pattern.record())
            pattern.is_kept = True
        head = f"+OK sub {pattern.topic} as={pattern.name} topics={len(share.members)}"

        def open_share() -> None:
            self._desk.reply(session, f"{head} pending={pending} prefetch={command.prefetch}")
            share.open(command.prefetch)
            self._sessions.note_attached(session)
            self._delivery.feeding.feed_due(now_ms)

        return open_share

    def _undo(self, session: Session, pattern: Pattern, share: Share[Consumer] | None, now_ms: int) -> None:
        """Detach a connection whose ``sub`` failed. The durable subscriptions that were made stay, as ordinary ones."""
        if share is not None and session.shares.get(pattern.key) is share:
            self.ends.leave(session, share, now_ms, is_failure=False)
        if not pattern.is_whole and not pattern.shares and self.table.by_key.get(pattern.key) is pattern:
            del self.table.by_key[pattern.key]

    def _check(self, session: Session, command: commands.SubscribePattern, *, is_resumed: bool) -> Steps[None]:
        """Raise Refusal if a topic has a subscription of another user with this name, or if there are too many topics."""
        name = command.name or session.own_name
        pattern = self.table.by_key.get((command.pattern, name))
        probe = Pattern(command.pattern, name, DEFAULT_POLICY, session.access.subscribe, is_durable=False)
        places = 0
        for topic in list(self._desk.topics):
            if probe.takes(topic.name):
                found = topic.subscriptions.get(name)
                places += 1 + (found is None)
                if found is not None and not (is_resumed or _may_adopt(session, pattern, found)):
                    raise not_yours(session, found)
            yield None
        if (command.pattern, name) not in session.shares and places > self.table.room:
            raise Refusal(
                "too_many", f"{command.pattern} matches too many topics for this broker; use a narrower pattern"
            )

    def _find_or_add(self, session: Session, command: commands.SubscribePattern) -> Pattern:
        """Return the pattern subscription, which is changed as the command asks, or a new one."""
        access, name = session.access, command.name or session.own_name
        pattern = self.table.by_key.get((command.pattern, name))
        if pattern is None:
            policy = DEFAULT_POLICY.changed(command.change)
            is_durable = command.name is not None
            pattern = Pattern(command.pattern, name, policy, access.subscribe, is_durable=is_durable)
            if access is not EVERYTHING:
                pattern.owners = (str(access.user),)
            self.table.add(pattern)
            return pattern
        if not access.may_use(pattern):
            raise not_yours(session, pattern)
        is_claimed = not pattern.owners and not access.is_admin
        if is_claimed or (access.user in pattern.owners and pattern.reads != access.subscribe):
            # The owner's permissions have changed.
            self.table.check_alone(pattern, access.subscribe)
            pattern.owners, pattern.owner = pattern.owners or (str(access.user),), Access("", (), access.subscribe)
            pattern.is_kept = False
        pattern.is_kept = pattern.is_kept and not command.change
        pattern.policy = pattern.policy.changed(command.change)
        return pattern

    def _share_of(self, session: Session, pattern: Pattern) -> Share[Consumer]:
        share = session.shares.get(pattern.key)
        if share is None:
            share = Share(pattern.key, self._delivery.feeding.due, is_durable=pattern.is_durable)
            session.shares[pattern.key] = pattern.shares[session] = share
        return share

    def _attach_topic(
        self, session: Session, command: commands.SubscribePattern, pattern: Pattern, topic: Topic, now_ms: int
    ) -> Steps[int]:
        """Attach a connection to one topic of its pattern. Return how many events wait there."""
        subscription = topic.subscriptions.get(pattern.name)
        if subscription is None:
            start = topic.nearest_place(start_offset(topic, command.start, now_ms))
            if not topic.lanes.reaches(start) and topic.visible - start > READ_AT_ONCE:
                yield from topic.reach_back(start)
        share = session.shares.get(pattern.key)
        if share is None or self._desk.topics.by_name.get(topic.name) is not topic:
            # Meanwhile, the connection was lost, the pattern was ended, or the topic was dropped.
            return 0
        subscription = topic.subscriptions.get(pattern.name)
        if subscription is None:
            subscription = self._make(pattern, topic, start)
        elif not _may_adopt(session, pattern, subscription) or not may_have(session, subscription):
            return 0
        elif command.change:
            subscription.change_policy(subscription.policy.changed(command.change), topic.lanes)
            if subscription.is_durable:
                self._desk.work.keep(PolicyRecord(topic.name, pattern.name, subscription.policy))
            self._delivery.pump(subscription, now_ms)
        pattern.topics.add(topic.name)
        self._join(session, share, subscription)
        return subscription.waiting

    def _make(self, pattern: Pattern, topic: Topic, start: int) -> Subscription:
        subscription = topic.subscribe(pattern.name, start, pattern.policy, is_durable=pattern.is_durable)
        subscription.owners = pattern.owners
        pattern.topics.add(topic.name)
        if pattern.is_durable:
            self._desk.work.keep(subscription_record(subscription, topic.visible))
        return subscription

    def _join(self, session: Session, share: Share[Consumer], subscription: Subscription) -> None:
        """Attach a connection to a subscription of its pattern, unless it is attached or may not be."""
        # No other pattern with this name has the topic, so the shares of other patterns cannot have it either.
        is_attached = (
            subscription.topic in share.members or (subscription.topic, subscription.name) in session.consumers
        )
        if is_attached or not may_have(session, subscription):
            return
        # The share limits the events of all topics, so the consumer of one topic needs no lower limit.
        consumer = Consumer(session, subscription, commands.PREFETCH_MAX, share)
        share.members[subscription.topic] = consumer
        subscription.consumers.append(consumer)
        self._exactly_once.attach(consumer)
        share.want(consumer)


def _may_adopt(session: Session, pattern: Pattern | None, found: Subscription) -> bool:
    """Whether a subscription belongs to a pattern, or may become part of it: a durable one of the user itself."""
    if pattern is not None and found.topic in pattern.topics:
        return True
    is_durable = session.own_name != found.name if pattern is None else pattern.is_durable
    return found.is_durable is is_durable and session.access.owns(found)
