"""Messages that are published exactly once: held for their client, then released into a log.

Always true: a message that is released says in the journal, which is synced before its log is written, at which offset it will
stand; so after a crash the log tells whether it was stored.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from broker.core.handshakes.books import Book, Books
from broker.core.handshakes.steps import checked
from broker.core.session import Session
from broker.core.topic import Accepted, Topic
from broker.errors import Refusal
from broker.events import IncomingEvent, encode_event
from broker.protocol import commands
from broker.protocol.event_lines import line_id, parse_event
from broker.protocol.handshakes import Half, State, Step
from broker.state import HandshakeRecord, HeldRecord, ReleasedRecord

if TYPE_CHECKING:
    from broker.core.broker import Broker

__all__ = ["HeldMessages"]

HELD_BYTES_MAX: Final = 64 << 20
READ_BYTES: Final = 2 << 20


class HeldMessage(Struct):
    """A message of a client; its `event` until the log has it, its `offset` from when it is released."""

    client: str
    topic: str
    id: str
    state: State
    event: IncomingEvent | None
    size: int = 0
    offset: int = -1
    ticket: int = 0


class HeldMessages:
    """The messages of all clients; who says a step has been looked at before."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._books: Books[tuple[str, str], HeldMessage] = Books()
        self._storing: dict[str, list[HeldMessage]] = {}
        self._held_bytes = 0

    def pub2(self, session: Session, command: commands.Pub2) -> None:
        """Hold a message for its client."""
        book = self._books.of(session.name)
        key = (command.topic, command.event.id)
        message = book.get(key)
        step = checked(Half.BROKER_PUBLISHING, State.NOTHING if message is None else message.state, Step.PUB2)
        if message is None:
            message = self._hold(session, command, step.state)
            book.add(key, message)
            self._keep_held(message)
        self._broker.reply_behind(session, message.ticket, f"{step.says} {command.topic} {command.event.id}")

    def pubrel(self, session: Session, command: commands.Pubrel, now_ms: int) -> None:
        """Store a message that is held; where it is stored already, say so again."""
        book = self._books.known(session.name)
        message = book.get((command.topic, command.id)) if book else None
        step = checked(Half.BROKER_PUBLISHING, State.NOTHING if message is None else message.state, Step.PUBREL)
        assert message is not None  # noqa: S101 — the table has no such step without one
        if message.state is State.HELD:
            self._release(message, step.state, now_ms)
        self._broker.reply_when_stored(
            session, message.topic, message.offset, f"{step.says} {message.topic} {message.id} {message.offset}"
        )

    def written(self, topic: Topic) -> None:
        """The log of a topic has what is visible now."""
        for message in self._take_storing(topic, lambda message: message.offset < topic.visible):
            message.state = checked(Half.BROKER_PUBLISHING, message.state, Step.WRITTEN).state
            self._forget_body(message)
            self._books.of(message.client).finish((message.topic, message.id))

    def not_written(self, topic: Topic) -> None:
        """What is not visible now is not in the log and must be released once more."""
        for message in self._take_storing(topic, lambda message: message.offset >= topic.visible):
            message.state = checked(Half.BROKER_PUBLISHING, message.state, Step.NOT_WRITTEN).state
            self._keep_held(message)

    def _hold(self, session: Session, command: commands.Pub2, state: State) -> HeldMessage:
        owner = self._broker.owners.get(command.topic, session)
        if owner is not session:
            raise Refusal("forbidden", f"{command.topic} is written by {owner.name} alone")
        topic = self._broker.topic(command.topic)
        if topic.documentation.schema is not None:
            topic.documentation.schema.check(command.event)
        body = encode_event(command.event)
        if self._held_bytes + len(body) > HELD_BYTES_MAX:
            raise Refusal("too_many", f"{HELD_BYTES_MAX} bytes of messages are held; some must be released first")
        self._held_bytes += len(body)
        return HeldMessage(session.name, topic.name, command.event.id, state, command.event, len(body))

    def _keep_held(self, message: HeldMessage) -> None:
        if message.event is not None:
            message.ticket = self._broker.work.keep(_held_record(message))

    def _release(self, message: HeldMessage, state: State, now_ms: int) -> None:
        """Give a held message its offset. Its topic's log waits until the journal has it, see `Topic.needed_record`."""
        topic = self._broker.topic(message.topic)
        if message.event is None:
            raise Refusal("no_event", f"what was held as {message.id} is lost; send it with pub2 again")
        for accepted in topic.accept([_fresh(message.event)], now_ms):
            if isinstance(accepted, Refusal):
                raise accepted
            self._note_released(topic, message, state, accepted)

    def _note_released(self, topic: Topic, message: HeldMessage, state: State, accepted: Accepted) -> None:
        message.offset, message.state = accepted.first, state
        record = ReleasedRecord(message.client, message.topic, message.id, message.offset)
        topic.needed_record = self._broker.work.keep(record)
        self._storing.setdefault(topic.name, []).append(message)
        self._broker.work.topics.add(topic)
        self._broker.work.must_sync_records = True
        if message.offset < topic.visible:
            self.written(topic)

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
        """Return how many messages are held, and how many on their way to a log."""
        storing = sum(map(len, self._storing.values()))
        return {"held": self._books.open_count() - storing, "storing": storing}

    def busy(self) -> set[str]:
        """Return the clients that have something open."""
        return self._books.busy()

    def forget_client(self, client: str) -> None:
        """Forget what is finished of a client."""
        self._books.forget(client)

    # State

    def records(self) -> Iterator[HandshakeRecord]:
        """Yield what must be kept of all of it."""
        for book in self._books:
            for message in book.entries():
                if message.event is not None:
                    yield _held_record(message)
                if message.offset >= 0 and message.state is not State.HELD:
                    is_stored = message.state is State.STORED
                    yield ReleasedRecord(message.client, message.topic, message.id, message.offset, is_stored)

    def restore_held(self, record: HeldRecord) -> None:
        """A message was held."""
        event = parse_event(record.event.encode())
        message = HeldMessage(record.client, record.topic, event.id, State.HELD, event, len(record.event))
        self._books.of(record.client).open[record.topic, event.id] = message

    def restore_released(self, record: ReleasedRecord) -> None:
        """A message was released, to stand at an offset."""
        book = self._books.of(record.client)
        key = (record.topic, record.id)
        message = book.open.get(key) or HeldMessage(record.client, record.topic, record.id, State.STORING, None)
        message.state = State.STORED if record.is_stored else State.STORING
        message.offset = record.offset
        book.open[key] = message

    def decide(self) -> None:
        """All records are restored: the logs, which are open, tell what of the released messages they have."""
        for book in self._books:
            for key, message in list(book.open.items()):
                if message.state is not State.HELD:
                    self._decide_one(book, key, message)
        self._held_bytes = sum(one.size for book in self._books for one in book.open.values())

    def _decide_one(self, book: Book[tuple[str, str], HeldMessage], key: tuple[str, str], message: HeldMessage) -> None:
        """A message was released when the broker ended: the log tells whether it is stored."""
        if message.state is State.STORED or self._is_stored(message):
            message.state = State.STORED
            self._forget_body(message)
            book.finish(key)
        elif message.event is None:
            del book.open[key]
        else:
            message.state, message.offset = State.HELD, -1

    def _is_stored(self, message: HeldMessage) -> bool:
        log = self._broker.topics[message.topic].log
        if message.offset < log.earliest:
            return True
        lines, _, _ = log.read(message.offset, 1, READ_BYTES) if message.offset < log.next else ([], 0, [])
        return any(line_id(line) == message.id and b'"offset":%d,' % message.offset in line for line in lines)


def _held_record(message: HeldMessage) -> HeldRecord:
    return HeldRecord(message.client, message.topic, msgspec.json.encode(message.event).decode())


def _fresh(event: IncomingEvent) -> IncomingEvent:
    """Return a copy: placing an event writes its place into it."""
    return msgspec.structs.replace(event)
