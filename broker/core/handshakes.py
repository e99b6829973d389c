"""The broker's halves of the exactly-once handshakes, as `protocol.handshakes` has them.

Always true: a state that a reply tells of is in the journal first. An event that is released says in the journal, which is
synced before its log is written, at which offset it will stand; so after a crash the log tells whether it was stored. What
is finished is remembered for a while, the newest of each client, so that a step whose answer was lost may be repeated.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from broker.core.consumer import Consumer
from broker.core.session import Session
from broker.core.topic import Accepted, Topic
from broker.errors import Refusal
from broker.events import IncomingEvent, encode_event
from broker.protocol import commands
from broker.protocol.event_lines import line_id, parse_event
from broker.protocol.handshakes import Half, Move, State, Step, move
from broker.state import FinishedRecord, HandshakeRecord, HeldRecord, ReleasedRecord, TakenRecord

if TYPE_CHECKING:
    from broker.core.broker import Broker

__all__ = ["Handshakes"]

OPEN_MAX: Final = 10_000
FINISHED_MAX: Final = 2_000
"""Of one client, in one direction."""
CLIENTS_MAX: Final = 10_000
HELD_BYTES_MAX: Final = 64 << 20
READ_BYTES: Final = 2 << 20

K = TypeVar("K")
E = TypeVar("E")


class _Book(Generic[K, E]):
    """What one client has open in one direction, and the newest of what is finished."""

    def __init__(self) -> None:
        self.open: dict[K, E] = {}
        self.finished: dict[K, E] = {}

    def get(self, key: K) -> E | None:
        """Return what is known under a key."""
        return self.open.get(key) or self.finished.get(key)

    def add(self, key: K, entry: E) -> None:
        """Open an entry. Raises Refusal ``too_many``."""
        if len(self.open) >= OPEN_MAX:
            raise Refusal("too_many", f"{OPEN_MAX} handshakes of this client are open; end some of them first")
        self.open[key] = entry

    def finish(self, key: K) -> None:
        """Remember an entry as finished, and forget the oldest of those."""
        self.finished[key] = self.open.pop(key)
        if len(self.finished) > FINISHED_MAX:
            del self.finished[next(iter(self.finished))]


class _Message(Struct):
    client: str
    topic: str
    id: str
    state: State
    event: IncomingEvent | None
    size: int = 0
    offset: int = -1
    ticket: int = 0


class _Delivery(Struct):
    client: str
    topic: str
    name: str
    offset: int
    id: str
    state: State
    ticket: int = 0


class Handshakes:
    """All open handshakes, by client."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._messages: dict[str, _Book[tuple[str, str], _Message]] = {}
        self._deliveries: dict[str, _Book[tuple[str, str, int], _Delivery]] = {}
        self._storing: dict[str, list[_Message]] = {}
        # The newest connection of each client, since a step that an older one has still in its buffers must not count.
        self._newest: dict[str, int] = {}
        self._held_bytes = 0

    def report(self) -> dict[str, int]:
        """Return how many messages stand in each state that is not an end."""
        counted = dict.fromkeys(("held", "storing", "taken"), 0)
        counted["storing"] = sum(map(len, self._storing.values()))
        counted["held"] = sum(len(book.open) for book in self._messages.values()) - counted["storing"]
        counted["taken"] = sum(len(book.open) for book in self._deliveries.values())
        return counted

    def _client(self, session: Session) -> str:
        """Return the name that handshakes are kept under. Raises Refusal where none was said, and on an older connection."""
        if not session.is_named:
            raise Refusal("bad_arguments", "say hello <name> first: a handshake is kept under the client's name")
        if session.number < self._newest.get(session.name, 0):
            raise Refusal("forbidden", f"a newer connection of {session.name} goes on with its handshakes")
        self._newest[session.name] = session.number
        if len(self._newest) > CLIENTS_MAX:
            self._forget_idle()
        return session.name

    def _forget_idle(self) -> None:
        """Forget what is finished of the clients that have nothing open, those first that came first."""
        busy = {name for name, book in self._messages.items() if book.open}
        busy |= {name for name, book in self._deliveries.items() if book.open}
        idle = [name for name in self._newest if name not in busy]
        for name in idle[: len(idle) // 2]:
            del self._newest[name]
            self._messages.pop(name, None)
            self._deliveries.pop(name, None)

    # Publishing

    def pub2(self, session: Session, command: commands.Pub2, now_ms: int) -> None:
        """Hold a message for its client."""
        book = self._messages.setdefault(self._client(session), _Book())
        key = (command.topic, command.event.id)
        message = book.get(key)
        step = _checked(Half.BROKER_PUBLISHING, State.NOTHING if message is None else message.state, Step.PUB2)
        if message is None:
            message = self._hold(session, command, step.state)
            book.add(key, message)
            self._keep_held(message)
        self._broker.reply_behind(session, message.ticket, f"{step.says} {command.topic} {command.event.id}")

    def pubrel(self, session: Session, command: commands.Pubrel, now_ms: int) -> None:
        """Store a message that is held; where it is stored already, say so again."""
        book = self._messages.get(self._client(session)) or _Book()
        message = book.get((command.topic, command.id))
        step = _checked(Half.BROKER_PUBLISHING, State.NOTHING if message is None else message.state, Step.PUBREL)
        assert message is not None  # noqa: S101 — the table has no such step without one
        if message.state is State.HELD:
            self._release(message, step.state, now_ms)
        self._broker.reply_when_stored(
            session, message.topic, message.offset, f"{step.says} {message.topic} {message.id} {message.offset}"
        )

    def written(self, topic: Topic) -> None:
        """The log of a topic has what is visible now."""
        for message in self._take_storing(topic, lambda message: message.offset < topic.visible):
            message.state = _checked(Half.BROKER_PUBLISHING, message.state, Step.WRITTEN).state
            self._forget_body(message)
            self._messages[message.client].finish((message.topic, message.id))

    def not_written(self, topic: Topic) -> None:
        """What is not visible now is not in the log and must be released once more."""
        for message in self._take_storing(topic, lambda message: message.offset >= topic.visible):
            message.state = _checked(Half.BROKER_PUBLISHING, message.state, Step.NOT_WRITTEN).state
            self._keep_held(message)

    def _hold(self, session: Session, command: commands.Pub2, state: State) -> _Message:
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
        return _Message(session.name, topic.name, command.event.id, state, command.event, len(body))

    def _keep_held(self, message: _Message) -> None:
        if message.event is not None:
            message.ticket = self._broker.work.keep(_held_record(message))

    def _release(self, message: _Message, state: State, now_ms: int) -> None:
        """Give a held message its offset. Its topic's log waits until the journal has it, see `Topic.needed_record`."""
        topic = self._broker.topic(message.topic)
        if message.event is None:
            raise Refusal("no_event", f"what was held as {message.id} is lost; send it with pub2 again")
        for accepted in topic.accept([_fresh(message.event)], now_ms):
            if isinstance(accepted, Refusal):
                raise accepted
            self._note_released(topic, message, state, accepted)

    def _note_released(self, topic: Topic, message: _Message, state: State, accepted: Accepted) -> None:
        message.offset, message.state = accepted.first, state
        record = ReleasedRecord(message.client, message.topic, message.id, message.offset)
        topic.needed_record = self._broker.work.keep(record)
        self._storing.setdefault(topic.name, []).append(message)
        self._broker.work.topics.add(topic)
        self._broker.work.must_sync_records = True
        if message.offset < topic.visible:
            self.written(topic)

    def _take_storing(self, topic: Topic, is_meant: Callable[[_Message], bool]) -> list[_Message]:
        storing = self._storing.get(topic.name)
        if not storing:
            return []
        meant = [message for message in storing if is_meant(message)]
        self._storing[topic.name] = [message for message in storing if not is_meant(message)]
        return meant

    def _forget_body(self, message: _Message) -> None:
        self._held_bytes -= message.size
        message.event, message.size = None, 0

    # Consuming

    def pubrec(self, session: Session, command: commands.Pubrec, now_ms: int) -> None:
        """The client has an event on its disk: it is not given again, to nobody."""
        client = self._client(session)
        in_flight = self._in_flight(session, command.topic, command.ref)
        delivery = self._delivery(
            session, command.topic, in_flight[1] if in_flight else command.ref, is_new=bool(in_flight)
        )
        state = delivery.state if delivery else State.IN_FLIGHT if in_flight else State.NOTHING
        step = _checked(Half.BROKER_CONSUMING, state, Step.PUBREC)
        if delivery is None and in_flight is not None:
            delivery = self._take(client, *in_flight, step.state)
        if in_flight is not None:
            self._broker.delivery.settle(in_flight[0], [in_flight[1]])
        ticket = delivery.ticket if delivery else 0
        self._broker.reply_behind(session, ticket, f"{step.says} {command.topic} {command.word}")

    def pubcomp(self, session: Session, command: commands.Pubcomp, now_ms: int) -> None:
        """The client is done with an event: that it was taken need not be known any longer."""
        client = self._client(session)
        delivery = self._delivery(session, command.topic, command.ref)
        step = _checked(Half.BROKER_CONSUMING, delivery.state if delivery else State.NOTHING, Step.PUBCOMP)
        if delivery is not None and delivery.state is State.TAKEN:
            delivery.state = step.state
            self._deliveries[client].finish((delivery.topic, delivery.name, delivery.offset))
            delivery.ticket = self._broker.work.keep(
                FinishedRecord(client, delivery.topic, delivery.name, delivery.offset)
            )
        self._broker.reply_behind(
            session, delivery.ticket if delivery else 0, f"{step.says} {command.topic} {command.word}"
        )
        if delivery is not None:
            self._make_room(session, delivery, now_ms)

    def attach(self, consumer: Consumer) -> None:
        """What a client has taken and is not done with counts as in flight on its new connection."""
        book = self._deliveries.get(consumer.session.name)
        sub = consumer.subscription
        if book is not None and sub.policy.qos == 2:
            for one in book.open.values():
                if (one.topic, one.name) == (sub.topic, sub.name):
                    consumer.note_taken(one.offset)

    def forget(self, topic: str, name: str) -> None:
        """A subscription has ended."""
        for book in self._deliveries.values():
            for entries in (book.open, book.finished):
                for key in [key for key in entries if key[:2] == (topic, name)]:
                    del entries[key]

    def _take(self, client: str, consumer: Consumer, offset: int, state: State) -> _Delivery:
        sub = consumer.subscription
        lines = self._broker.topics[sub.topic].recent.lines([offset])
        delivery = _Delivery(client, sub.topic, sub.name, offset, line_id(lines[0]) if lines else "", state)
        self._deliveries.setdefault(client, _Book()).add((sub.topic, sub.name, offset), delivery)
        delivery.ticket = self._broker.work.keep(TakenRecord(client, sub.topic, sub.name, offset, delivery.id))
        consumer.note_taken(offset)
        return delivery

    def _make_room(self, session: Session, delivery: _Delivery, now_ms: int) -> None:
        consumer = session.consumers.get((delivery.topic, delivery.name))
        if consumer is not None and consumer.note_done(delivery.offset):
            self._broker.delivery.pump(consumer.subscription, now_ms)

    def _delivery(self, session: Session, topic: str, ref: int | str, *, is_new: bool = False) -> _Delivery | None:
        """Find what a client has taken, the oldest one where several have the id; what is open before what is finished.

        One that `is_new` is looked for among those of the connection's own subscriptions only.
        """
        book = self._deliveries.get(session.name)
        if book is None:
            return None
        if isinstance(ref, int):
            mine = (book.get((topic, one.subscription.name, ref)) for one in session.consumers_of(topic))
            found = next((one for one in mine if one is not None), None)
            if found is not None or is_new:
                return found
        entries = (*book.open.values(), *book.finished.values())
        return next((one for one in entries if one.topic == topic and ref in {one.offset, one.id}), None)

    def _in_flight(self, session: Session, topic: str, ref: int | str) -> tuple[Consumer, int] | None:
        """Find an event that is in flight here on a subscription with ``qos=2``."""
        for consumer in session.consumers_of(topic):
            if consumer.subscription.policy.qos == 2:
                offset = self._broker.find_in_flight(consumer, ref)
                if offset is not None:
                    return consumer, offset
        return None

    # State

    def records(self) -> Iterator[HandshakeRecord]:
        """Yield what must be kept of all of it."""
        for messages in self._messages.values():
            for message in (*messages.finished.values(), *messages.open.values()):
                if message.event is not None:
                    yield _held_record(message)
                if message.offset >= 0 and message.state is not State.HELD:
                    is_stored = message.state is State.STORED
                    yield ReleasedRecord(message.client, message.topic, message.id, message.offset, is_stored)
        for deliveries in self._deliveries.values():
            for one in (*deliveries.finished.values(), *deliveries.open.values()):
                yield TakenRecord(one.client, one.topic, one.name, one.offset, one.id)
                if one.state is State.SETTLED:
                    yield FinishedRecord(one.client, one.topic, one.name, one.offset)

    def restore(self, records: Iterable[HandshakeRecord]) -> None:
        """Stand where `records` say; the logs, which are open, tell what of the released messages they have."""
        for record in records:
            if record.topic in self._broker.topics:
                self._restore_one(record)
        for messages in self._messages.values():
            for key, message in list(messages.open.items()):
                if message.state is not State.HELD:
                    self._decide(messages, key, message)
        self._held_bytes = sum(one.size for book in self._messages.values() for one in book.open.values())

    def _restore_one(self, record: HandshakeRecord) -> None:
        match record:
            case HeldRecord():
                event = parse_event(record.event.encode())
                message = _Message(record.client, record.topic, event.id, State.HELD, event, len(record.event))
                self._messages.setdefault(record.client, _Book()).open[record.topic, event.id] = message
            case ReleasedRecord():
                book = self._messages.setdefault(record.client, _Book())
                key = (record.topic, record.id)
                message = book.open.get(key) or _Message(record.client, record.topic, record.id, State.STORING, None)
                message.state = State.STORED if record.is_stored else State.STORING
                message.offset = record.offset
                book.open[key] = message
            case TakenRecord():
                taken = _Delivery(record.client, record.topic, record.name, record.offset, record.id, State.TAKEN)
                taken_book = self._deliveries.setdefault(record.client, _Book())
                taken_book.open[record.topic, record.name, record.offset] = taken
            case FinishedRecord():
                deliveries = self._deliveries.get(record.client) or _Book()
                delivery = deliveries.open.get((record.topic, record.name, record.offset))
                if delivery is not None:
                    delivery.state = State.SETTLED
                    deliveries.finish((record.topic, record.name, record.offset))

    def _decide(self, book: _Book[tuple[str, str], _Message], key: tuple[str, str], message: _Message) -> None:
        """A message was released when the broker ended: the log tells whether it is stored."""
        if message.state is State.STORED or self._is_stored(message):
            message.state = State.STORED
            self._forget_body(message)
            book.finish(key)
        elif message.event is None:
            del book.open[key]
        else:
            message.state, message.offset = State.HELD, -1

    def _is_stored(self, message: _Message) -> bool:
        log = self._broker.topics[message.topic].log
        if message.offset < log.earliest:
            return True
        lines, _, _ = log.read(message.offset, 1, READ_BYTES) if message.offset < log.next else ([], 0, [])
        return any(line_id(line) == message.id and b'"offset":%d,' % message.offset in line for line in lines)


def _checked(half: Half, state: State, step: Step) -> Move:
    """Return what a step leads to. Raises Refusal where the table has no such step."""
    to = move(half, state, step)
    if to is None and half is Half.BROKER_PUBLISHING:
        raise Refusal("no_event", "nothing is held under that id; send it with pub2 first")
    if to is None:
        raise Refusal("stale", "nothing of that is in flight on this connection, or was taken by this client")
    return to


def _held_record(message: _Message) -> HeldRecord:
    return HeldRecord(message.client, message.topic, encode_event(message.event).decode())


def _fresh(event: IncomingEvent) -> IncomingEvent:
    """Return a copy: placing an event writes its place into it."""
    return msgspec.structs.replace(event)
