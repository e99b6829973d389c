"""Steering: commands that move a durable subscription, pause it, or discard its dead events."""

from broker.core.delivery.delivery import Delivery
from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.steps import SLICE, Outcome, Steps
from broker.core.topic.kept import subscription_record
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.verbs.dead_refs import dead_offsets, look_up_dead
from broker.core.verbs.exactly_once import ExactlyOnce
from broker.core.verbs.finding import check_owner, find_subscription, start_offset
from broker.core.verbs.handler import Handlers
from broker.journal.records import DiscardedRecord, PausedRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs import steering as commands

__all__ = ["Steering"]


class Steering:
    """Changes durable subscriptions for their owners. A change is confirmed once it is on the disk."""

    def __init__(self, desk: Desk, delivery: Delivery, exactly_once: ExactlyOnce) -> None:
        self._desk = desk
        self._delivery = delivery
        self._exactly_once = exactly_once
        self.handlers: Handlers = {
            commands.Seek: self.seek,
            commands.Pause: self.pause,
            commands.Resume: self.resume,
            commands.Discard: self.discard,
        }

    def seek(self, session: Session, command: commands.Seek, now_ms: int) -> None:
        """Replace a subscription by one that begins at another place, with the same name, policy and consumers."""
        topic, before = self._own(session, command)
        start = topic.nearest_place(start_offset(topic, command.to, now_ms))
        if not topic.lanes.reaches(start):
            self._desk.begin_job(session, self._reach_back(session, command, topic, start, now_ms))
            return
        after = topic.subscribe(before.name, start, before.policy, is_durable=True)
        after.take_over(before)
        _move_consumers(before, after)
        self._exactly_once.forget_subscription(topic.name, before.name)
        self._delivery.retire(before)
        record = subscription_record(after, topic.visible)
        record.is_sought = True
        self._desk.reply_when_kept(
            session, record, f"+OK seek {topic.name} as={after.name} from={start} pending={after.waiting}"
        )
        self._delivery.pump(after, now_ms)

    def _reach_back(
        self, session: Session, command: commands.Seek, topic: Topic, start: int, now_ms: int
    ) -> Steps[Outcome]:
        yield from topic.reach_back(start)
        return lambda: self.seek(session, command, now_ms)

    def pause(self, session: Session, command: commands.Pause, now_ms: int) -> None:
        """Deliver no more events of a subscription."""
        self._set_paused(session, command, "pause", is_paused=True)

    def resume(self, session: Session, command: commands.Resume, now_ms: int) -> None:
        """Deliver events of a subscription again."""
        subscription = self._set_paused(session, command, "resume", is_paused=False)
        self._delivery.pump(subscription, now_ms)

    def _set_paused(
        self, session: Session, command: commands.Pause | commands.Resume, verb: str, *, is_paused: bool
    ) -> Subscription:
        topic, subscription = self._own(session, command)
        subscription.pause(is_paused=is_paused)
        # This may be a repeated command, and the record of the first one may not be on the disk yet. So keep a record in any
        # case.
        record = PausedRecord(topic.name, subscription.name, is_paused)
        self._desk.reply_when_kept(session, record, f"+OK {verb} {topic.name} as={subscription.name}")
        return subscription

    def discard(self, session: Session, command: commands.Discard, now_ms: int) -> None:
        """Settle dead events."""
        topic, subscription = self._own(session, command)
        self._desk.begin_job(session, self._discard(session, command, topic, subscription))

    def _discard(
        self, session: Session, command: commands.Discard, topic: Topic, subscription: Subscription
    ) -> Steps[Outcome]:
        """Settle dead events in slices, each with its record."""
        refs = yield from look_up_dead(topic, subscription, command.refs)
        offsets = dead_offsets(subscription, refs)
        count = record = 0
        for at in range(0, len(offsets), SLICE):
            by_priority = subscription.discard_dead(offsets[at : at + SLICE])
            count += sum(map(len, by_priority.values()))
            if by_priority and subscription.is_durable:
                record = self._desk.work.keep(DiscardedRecord(topic.name, subscription.name, by_priority))
            yield None
        line = f"+OK discard {topic.name} {count}"
        return lambda: self._desk.reply_after_record(session, record, line)

    def _own(
        self, session: Session, command: commands.Seek | commands.Pause | commands.Resume | commands.Discard
    ) -> tuple[Topic, Subscription]:
        """Return the topic and the durable subscription of a command. Raises Refusal if the user may not change it."""
        topic = self._desk.topics.find(command.topic)
        subscription = find_subscription(session, topic, command.name)
        if not subscription.is_durable:
            raise Refusal("bad_arguments", f"{command.name} ends with its connection; name a durable subscription")
        check_owner(session, subscription)
        self._desk.topics.check_room()
        return topic, subscription


def _move_consumers(before: Subscription, after: Subscription) -> None:
    """Attach the consumers of a subscription to its replacement, with no events in flight."""
    for consumer in list(before.consumers):
        consumer.take_out(list(consumer.in_flight))
        before.consumers.remove(consumer)
        # A consumer with a prefetch of 0 belongs to a session that has ended.
        if consumer.prefetch:
            moved = Consumer(consumer.session, after, consumer.prefetch, consumer.share)
            if consumer.promise is not None:
                moved.promise_begin()
            if consumer.share is None:
                consumer.session.consumers[after.topic, after.name] = moved
            else:
                consumer.share.members[after.topic] = moved
            after.consumers.append(moved)
