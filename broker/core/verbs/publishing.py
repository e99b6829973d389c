"""Publishing: events, a producer's position and checkpoint, and the removal of a producer that is no longer needed."""

from collections.abc import Sequence
from typing import Any

import msgspec

from broker.core.desk import Desk
from broker.core.mark_waits import MarkWait
from broker.core.session import Session
from broker.core.topic.claims import Claims
from broker.core.topic.producers import Producer
from broker.core.topic.topic import Topic
from broker.core.verbs.handler import Handlers
from broker.core.verbs.requesting import Requesting
from broker.journal.records import CheckpointRecord, ForgottenRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.request_reply import REPLIES
from tweetwire.protocol.verbs import publishing as commands

__all__ = ["Publishing"]


class Publishing:
    """Accepts events, and shows and changes producers. A change is confirmed once it is on the disk."""

    def __init__(self, desk: Desk, requesting: Requesting) -> None:
        self._desk = desk
        self._requesting = requesting
        self.handlers: Handlers = {
            commands.Publish: self.publish,
            commands.Last: self.last,
            commands.Checkpoint: self.checkpoint,
            commands.Skip: self.skip,
            commands.Forget: self.forget,
        }

    def publish(self, session: Session, command: commands.Publish, now_ms: int) -> None:
        """Accept a run of events. Each is confirmed when its batch is stored."""
        desk, name, events = self._desk, command.topic, command.events
        desk.counts["commands"] += len(events) - 1
        desk.topics.check_writer(session, name)
        topic = desk.topics.by_name.get(name) or desk.topics.find_or_make(name)
        wait = None
        if command.wanted is not None or topic.confirmation.after:
            wait = desk.waits.find(topic, command.wanted)
        try:
            if session.gaps:
                self._accept_in_turn(session, topic, command, now_ms, wait)
            else:
                self._accept(session, topic, command, now_ms, wait)
        finally:
            if name == REPLIES:
                self._requesting.note_accepted(events)
            desk.release_when_stored(session, name)

    def shares(self, publish: commands.Publish) -> Sequence[commands.Publish]:
        """Split a run of publishes into parts that are short to execute."""
        topic = self._desk.topics.by_name.get(publish.topic)
        if topic is None or topic.documentation.schema is None:
            return (publish,)
        shares = topic.documentation.schema.shares(publish.events)
        return [
            commands.Publish(publish.topic, events, publish.wanted, publish.is_timed, publish.epoch)
            for events in shares
        ]

    def last(self, session: Session, command: commands.Last, now_ms: int) -> None:
        """Reply with a producer's last stored position, and its refused sequence if there is one."""
        producers = self._desk.topics.find(command.topic).producers
        stored = producers.stored.get(command.producer)
        known = session.gaps.known.get((command.topic, command.producer)) if session.gaps is not None else None
        gap = producers.gaps.get(command.producer) or known
        answer = stored if gap is None else {**msgspec.to_builtins(stored or Producer()), "refused": gap}
        if command.producer in producers.claims.epochs:
            answer = msgspec.to_builtins(answer) | _claim(producers.claims, command.producer)
        position = msgspec.json.encode(answer).decode()
        self._desk.reply(session, f"+OK last {command.topic} {command.producer} {position}")

    def skip(self, session: Session, command: commands.Skip, now_ms: int) -> None:
        """Let a producer give up its refused events up to a sequence."""
        self._desk.topics.check_writer(session, command.topic)
        topic = self._desk.topics.by_name.get(command.topic)
        if topic is not None:
            topic.producers.claims.check(command.producer, command.epoch)
            topic.producers.gaps.skip(command.producer, command.sequence)
        if session.gaps is not None:
            session.gaps.skip(command.topic, command.producer, command.sequence)
        self._desk.reply(session, f"+OK skip {command.topic} {_named(command)}")

    def checkpoint(self, session: Session, command: commands.Checkpoint, now_ms: int) -> None:
        """Move a producer's checkpoint without an event."""
        self._desk.topics.check_writer(session, command.topic)
        self._desk.topics.check_room()
        topic = self._desk.topics.find_or_make(command.topic)
        topic.producers.claims.check(command.producer, command.epoch)
        record = self._move_checkpoint(topic, command.producer, command.value)
        self._desk.reply_when_kept(session, record, f"+OK checkpoint {record.topic} {_named(command)}")

    def forget(self, session: Session, command: commands.Forget, now_ms: int) -> None:
        """Forget a producer. Its events stay, but events that it sends again are stored twice."""
        topic = self._desk.topics.find(command.topic)
        self._desk.topics.check_room()
        topic.producers.forget(command.producer)
        record = ForgottenRecord(topic.name, command.producer, topic.visible)
        self._desk.reply_when_kept(session, record, f"+OK forget {topic.name} {command.producer}")

    def keep_checkpoint(self, topic: str, producer: str, value: str) -> None:
        """Move the checkpoint of a producer inside the broker's process. This is not refused when the disk is full."""
        self._desk.work.keep(self._move_checkpoint(self._desk.topics.make(topic), producer, value))

    def _move_checkpoint(self, topic: Topic, producer: str, value: str) -> CheckpointRecord:
        topic.producers.check_room(producer, value)
        return CheckpointRecord(topic.name, producer, topic.producers.set_checkpoint(producer, value), value)

    def _accept(
        self, session: Session, topic: Topic, command: commands.Publish, now_ms: int, wait: MarkWait | None
    ) -> None:
        for accepted in topic.accept(command.events, now_ms, is_timed=command.is_timed, epoch=command.epoch):
            if isinstance(accepted, Refusal):
                self._desk.refuse(session, accepted, now_ms)
            elif accepted.is_duplicate:
                again = None if wait is None else self._desk.waits.find_again(wait, accepted.first, topic)
                session.outbox.expect_duplicate(topic.name, accepted.first, again)
                if again is not None:
                    again.expect(accepted.first + 1, now_ms)
            else:
                session.outbox.expect_confirmation(topic.name, accepted.first, accepted.last, accepted.size, wait)
                self._desk.work.topics.add(topic)
                if wait is not None:
                    wait.expect(accepted.last + 1, now_ms)

    def _accept_in_turn(
        self, session: Session, topic: Topic, command: commands.Publish, now_ms: int, wait: MarkWait | None
    ) -> None:
        """Accept events one by one, on a connection that has had events refused."""
        gaps = session.note_gaps()
        for event in command.events:
            try:
                gaps.check_sequence(topic.name, event, topic.producers.last_sequence(event))
            except Refusal as refusal:
                self._desk.refuse(session, refusal, now_ms)
                continue
            one = commands.Publish(topic.name, [event], is_timed=command.is_timed, epoch=command.epoch)
            self._accept(session, topic, one, now_ms, wait)
            if topic.producers.last_sequence(event) == event.sequence:
                gaps.note_accepted(topic.name, event)


def _claim(claims: Claims, producer: str) -> dict[str, Any]:
    holder = claims.holder(producer)
    return {"epoch": claims.epochs[producer], "holder": None if holder is None else holder.name}


def _named(command: commands.Checkpoint | commands.Skip) -> str:
    return f"{command.producer}@{command.epoch}" if command.epoch else command.producer
