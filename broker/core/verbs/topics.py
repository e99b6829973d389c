"""Topics: commands that create, purge and drop topics, and set their retention."""

from typing import Final

from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.sessions import Sessions
from broker.core.steps import Outcome, Steps
from broker.core.topic.topic import Topic
from broker.core.verbs.documenting import Documenting
from broker.core.verbs.exactly_once import ExactlyOnce
from broker.core.verbs.finding import start_offset
from broker.core.verbs.handler import Handlers
from broker.core.verbs.reading import ReadingVerbs
from broker.core.verbs.subscribing import Subscribing
from broker.core.work import Drop
from broker.journal.records import PurgedRecord, RetentionRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs import topics as commands

__all__ = ["TopicVerbs"]

SUBSCRIPTIONS_A_SLICE: Final = 100


class TopicVerbs:
    """Creates, purges and drops topics, and changes their retention. A change is confirmed once it is on the disk."""

    def __init__(
        self,
        desk: Desk,
        sessions: Sessions,
        subscribing: Subscribing,
        documenting: Documenting,
        exactly_once: ExactlyOnce,
        *,
        reading: ReadingVerbs,
    ) -> None:
        self._desk = desk
        self._sessions = sessions
        self._subscribing = subscribing
        self._documenting = documenting
        self._exactly_once = exactly_once
        self._reading = reading
        self.handlers: Handlers = {
            commands.Create: self.create,
            commands.Drop: self.drop,
            commands.Purge: self.purge,
            commands.Retain: self.retain,
        }

    def create(self, session: Session, command: commands.Create, now_ms: int) -> None:
        """Create a topic. An existing topic is not changed, so it must already have the retention in the command."""
        name = command.topic
        known = self._desk.topics.by_name.get(name)
        topic = self._desk.topics.make(name)
        retention = topic.retention.changed(command.retention)
        if known is not None and retention != known.retention:
            raise Refusal("bad_arguments", f"{name} exists with {known.retention}; to change that: retain {name} ...")
        line = f"+OK create {name} {'new' if known is None else 'exists'}"
        if command.retention:
            topic.retention = retention
            self._desk.reply_when_kept(session, RetentionRecord(name, retention), line)
        else:
            self._desk.reply(session, line)

    def retain(self, session: Session, command: commands.Retain, now_ms: int) -> None:
        """Change a topic's retention if the command asks for it, and reply with the retention."""
        topic = self._desk.topics.find(command.topic)
        if command.change:
            self._desk.topics.check_room()
        topic.retention = topic.retention.changed(command.change)
        line = f"+OK retain {topic.name} {topic.retention}"
        if command.change:
            self._desk.reply_when_kept(session, RetentionRecord(topic.name, topic.retention), line)
        else:
            self._desk.reply(session, line)

    # A full disk refuses neither a purge nor a drop, since they make room.

    def purge(self, session: Session, command: commands.Purge, now_ms: int) -> None:
        """Hide the events before a place immediately. Retention removes whole segments of them later."""
        topic = self._desk.topics.find(command.topic)
        below = topic.nearest_place(start_offset(topic, command.before, now_ms))
        topic.marks.overtake(topic.log.earliest, below)
        topic.hide_below(below)
        # This may be a repeated command, and the record of the first one may not be on the disk yet. So keep a record in any
        # case.
        record = self._desk.work.keep(PurgedRecord(topic.name, below))
        self._desk.begin_job(session, self._pass_over(session, topic, below, record))

    def _pass_over(self, session: Session, topic: Topic, below: int, record: int) -> Steps[Outcome]:
        """Make the subscriptions of a topic skip its hidden events. Until then, no fetch finds these events."""
        left = list(topic.subscriptions.values())
        try:
            while left:
                left.pop().overtake(below)
                if len(left) % SUBSCRIPTIONS_A_SLICE == 0:
                    yield None
        finally:
            # The client may have left.
            for subscription in left:
                subscription.overtake(below)
        line = f"+OK purge {topic.name} {below}"
        return lambda: self._desk.reply_after_record(session, record, line)

    def drop(self, session: Session, command: commands.Drop, now_ms: int) -> None:
        """Begin to delete a topic. Until its log is deleted, its subscriptions stay, and other commands for it are refused."""
        topic = self._desk.topics.find(command.topic)
        events = topic.next - topic.log.earliest
        if command.if_empty and events:
            raise Refusal(
                "bad_arguments", f"{topic.name} has {events} events; purge it first, or drop it without if_empty"
            )
        self._desk.begin_drop(session, topic)

    def finish_drop(self, drop: Drop) -> Steps[None]:
        """Delete the state of a topic whose log was deleted, and notify its consumers."""
        topic = drop.topic
        lost: set[Session] = set()
        # Until the topic is forgotten, a pattern may add its subscription.
        while topic.subscriptions:
            for subscription in list(topic.subscriptions.values())[:SUBSCRIPTIONS_A_SLICE]:
                lost.update(self._subscribing.end(topic, subscription, f"{drop.session.name} dropped the topic"))
            if topic.subscriptions:
                yield None
        for session in lost:
            self._sessions.note_attached(session)
        self._subscribing.forget_topic(topic.name)
        self._exactly_once.forget_topic(topic.name)
        self._reading.waiting.forget_topic(topic)
        self._documenting.note_dropped(topic.documentation)
        self._desk.forget_topic(drop)
