"""Messages that are published exactly once: the broker holds each for its client until the client releases it into a log.

Always true: the journal has the offset of a released message, and is synced before the log is written. So after a crash the log
shows whether the message was stored.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.topic.topic import Accepted, Topic
from broker.core.verbs.exactly_once.books import Book, Books
from broker.core.verbs.exactly_once.steps import checked
from broker.journal.records import HandshakeRecord, HeldRecord, ReleasedRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.event_lines import line_id, parse_event
from tweetwire.protocol.events import IncomingEvent, encode_event
from tweetwire.protocol.handshakes import Half, State, Step
from tweetwire.protocol.timing import TimedEvent, fix_times
from tweetwire.protocol.verbs import exactly_once as commands

__all__ = ["HeldMessages"]

HELD_BYTES_MAX: Final = 64 << 20
READ_BYTES: Final = 2 << 20


class HeldMessage(Struct):
    """A message of a client. `event` is set until the log has it; `offset` is set from its release on."""

    client: str
    topic: str
    id: str
    state: State
    event: IncomingEvent | None
    size: int = 0
    offset: int = -1
    ticket: int = 0


class HeldMessages:
    """The messages of all clients. The caller has checked that a client may take a step."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._books: Books[tuple[str, str], HeldMessage] = Books()
        self._storing: dict[str, list[HeldMessage]] = {}
        self._held_bytes = 0

    def hold(self, session: Session, command: commands.Pub2, now_ms: int) -> None:
        """Hold a message for its client."""
        book = self._books.made_for(session.name)
        key = (command.topic, command.event.id)
        message = book.get(key)
        step = checked(Half.BROKER_PUBLISHING, State.NOTHING if message is None else message.state, Step.PUB2)
        if message is None:
            message = self._new_message(session, command, step.state, now_ms)
            book.add(key, message)
            self._keep_held(message)
        self._desk.reply_after_record(session, message.ticket, f"{step.says} {command.topic} {command.event.id}")

    def release(self, session: Session, command: commands.Pubrel, now_ms: int) -> None:
        """Store a message that is held, or confirm again that it is stored."""
        book = self._books.known(session.name)
        message = book.get((command.topic, command.id)) if book else None
        step = checked(Half.BROKER_PUBLISHING, State.NOTHING if message is None else message.state, Step.PUBREL)
        assert message is not None  # noqa: S101 — the table allows this step only with a message
        if message.state is State.HELD:
            self._desk.topics.check_writer(session, message.topic)
            self._accept(message, step.state, now_ms)
        self._desk.reply_when_confirmed(
            session, message.topic, message.offset, f"{step.says} {message.topic} {message.id} {message.offset}", now_ms
        )

    def note_written(self, topic: Topic) -> None:
        """Finish the messages that the log of a topic has."""
        for message in self._take_storing(topic, lambda message: message.offset < topic.visible):
            message.state = checked(Half.BROKER_PUBLISHING, message.state, Step.WRITTEN).state
            self._forget_body(message)
            self._books.made_for(message.client).finish((message.topic, message.id))

    def note_unwritten(self, topic: Topic) -> None:
        """Hold messages again that the log of a topic lacks: clients must release them again."""
        for message in self._take_storing(topic, lambda message: message.offset >= topic.visible):
            message.state = checked(Half.BROKER_PUBLISHING, message.state, Step.NOT_WRITTEN).state
            self._keep_held(message)

    def _new_message(self, session: Session, command: commands.Pub2, state: State, now_ms: int) -> HeldMessage:
        self._desk.topics.check_writer(session, command.topic)
        self._desk.topics.check_room()
        topic = self._desk.topics.find_or_make(command.topic)
        if topic.documentation.schema is not None:
            topic.documentation.schema.check(command.event)
        if isinstance(command.event, TimedEvent):
            # A delay counts from now, and not from the release.
            fix_times(command.event, self._desk.dates.of(now_ms))
        body = encode_event(command.event)
        if self._held_bytes + len(body) > HELD_BYTES_MAX:
            raise Refusal("too_many", f"{HELD_BYTES_MAX} bytes of messages are held; some must be released first")
        self._held_bytes += len(body)
        return HeldMessage(session.name, topic.name, command.event.id, state, command.event, len(body))

    def _keep_held(self, message: HeldMessage) -> None:
        if message.event is not None:
            message.ticket = self._desk.work.keep(_held_record(message))

    def _accept(self, message: HeldMessage, state: State, now_ms: int) -> None:
        """Give a held message its offset. The journal stores this before the topic's log does, see `Topic.needed_record`."""
        topic = self._desk.topics.find(message.topic)
        if message.event is None:
            raise Refusal("no_event", f"the message held as {message.id} is lost; send it with pub2 again")
        is_timed = isinstance(message.event, TimedEvent)
        for accepted in topic.accept([_fresh(message.event)], now_ms, is_timed=is_timed):
            if isinstance(accepted, Refusal):
                raise accepted
            self._note_released(topic, message, state, accepted)

    def _note_released(self, topic: Topic, message: HeldMessage, state: State, accepted: Accepted) -> None:
        message.offset, message.state = accepted.first, state
        record = ReleasedRecord(message.client, message.topic, message.id, message.offset)
        topic.needed_record = self._desk.work.keep(record)
        self._storing.setdefault(topic.name, []).append(message)
        self._desk.work.topics.add(topic)
        self._desk.work.must_sync_records = True
        if message.offset < topic.visible:
            self.note_written(topic)

    def _take_storing(self, topic: Topic, is_meant: Callable[[HeldMessage], bool]) -> list[HeldMessage]:
        storing = self._storing.get(topic.name)
        if not storing:
            return []
        meant = [message for message in storing if is_meant(message)]
        self._storing[topic.name] = [message for message in storing if not is_meant(message)]
        return meant

    def _forget_body(self, message: HeldMessage) -> None:
        self._held_bytes -= message.size
        message.event, message.size = None, 0

    def report(self) -> dict[str, int]:
        """Return how many messages are held, and how many are on their way to a log."""
        storing = sum(map(len, self._storing.values()))
        return {"held": self._books.open_count() - storing, "storing": storing}

    def busy(self) -> set[str]:
        """Return the clients that have open handshakes."""
        return self._books.busy()

    def forget_client(self, client: str) -> None:
        """Forget a client's finished handshakes."""
        self._books.forget(client)

    def forget_topic(self, topic: str) -> None:
        """Forget the messages for a dropped topic. No message is on its way to the log."""
        self._storing.pop(topic, None)
        for book in self._books:
            for message in book.forget_keys(lambda key: key[0] == topic):
                self._forget_body(message)

    # Records

    def records(self) -> Iterator[HandshakeRecord]:
        """Yield the records that the journal must keep."""
        for book in self._books:
            for message in book.entries():
                if message.event is not None:
                    yield _held_record(message)
                if message.offset >= 0 and message.state is not State.HELD:
                    is_stored = message.state is State.STORED
                    yield ReleasedRecord(message.client, message.topic, message.id, message.offset, is_stored)

    def restore_held(self, record: HeldRecord) -> None:
        """Restore a message that was held."""
        event = parse_event(record.event.encode())
        message = HeldMessage(record.client, record.topic, event.id, State.HELD, event, len(record.event))
        self._books.made_for(record.client).open[record.topic, event.id] = message

    def restore_released(self, record: ReleasedRecord) -> None:
        """Restore a released message with its offset."""
        book = self._books.made_for(record.client)
        key = (record.topic, record.id)
        message = book.open.get(key) or HeldMessage(record.client, record.topic, record.id, State.STORING, None)
        message.state = State.STORED if record.is_stored else State.STORING
        message.offset = record.offset
        book.open[key] = message

    def decide(self) -> None:
        """Find out in the logs, after all records were restored, which released messages are stored."""
        for book in self._books:
            for key, message in list(book.open.items()):
                if message.state is not State.HELD:
                    self._decide_one(book, key, message)
        self._held_bytes = sum(one.size for book in self._books for one in book.open.values())

    def _decide_one(self, book: Book[tuple[str, str], HeldMessage], key: tuple[str, str], message: HeldMessage) -> None:
        """Finish a message that was on its way to the log when the broker ended, if the log has it. Otherwise hold it again."""
        if message.state is State.STORED or self._is_stored(message):
            message.state = State.STORED
            self._forget_body(message)
            book.finish(key)
        elif message.event is None:
            del book.open[key]
        else:
            message.state, message.offset = State.HELD, -1

    def _is_stored(self, message: HeldMessage) -> bool:
        log = self._desk.topics.by_name[message.topic].log
        if message.offset < log.earliest:
            return True
        lines, _, _ = log.read(message.offset, 1, READ_BYTES) if message.offset < log.next else ([], 0, [])
        return any(line_id(line) == message.id and b'"offset":%d,' % message.offset in line for line in lines)


def _held_record(message: HeldMessage) -> HeldRecord:
    return HeldRecord(message.client, message.topic, msgspec.json.encode(message.event).decode())


def _fresh(event: IncomingEvent) -> IncomingEvent:
    """Return a copy of an event, since `place` changes the event that it gets."""
    return msgspec.structs.replace(event)
