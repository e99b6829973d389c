"""Events that are consumed exactly once: taken by a client, then finished.

Always true: an event is settled in its subscription when it is taken, so it is given to nobody again; until it is finished it
counts as in flight on the newest connection of the client that has it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from broker.core.consumer import Consumer
from broker.core.handshakes.books import Books
from broker.core.handshakes.steps import checked
from broker.core.session import Session
from broker.protocol import commands
from broker.protocol.event_lines import line_id
from broker.protocol.handshakes import Half, State, Step
from broker.state import FinishedRecord, HandshakeRecord, TakenRecord

if TYPE_CHECKING:
    from broker.core.broker import Broker

__all__ = ["TakenEvents"]


class TakenEvent(Struct):
    """An event that a client has taken, and perhaps finished; `id` is empty where it is not known any more."""

    client: str
    topic: str
    name: str
    offset: int
    id: str
    state: State
    ticket: int = 0


class TakenEvents:
    """What all clients have taken; who says a step has been looked at before."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._books: Books[tuple[str, str, int], TakenEvent] = Books()

    def pubrec(self, session: Session, command: commands.Pubrec) -> None:
        """The client has an event on its disk: it is not given again, to nobody."""
        in_flight = self._in_flight(session, command.topic, command.ref)
        delivery = self._delivery(
            session, command.topic, in_flight[1] if in_flight else command.ref, is_new=bool(in_flight)
        )
        state = delivery.state if delivery else State.IN_FLIGHT if in_flight else State.NOTHING
        step = checked(Half.BROKER_CONSUMING, state, Step.PUBREC)
        if delivery is None and in_flight is not None:
            delivery = self._take(session.name, *in_flight, step.state)
        if in_flight is not None:
            self._broker.delivery.settle(in_flight[0], [in_flight[1]])
        ticket = delivery.ticket if delivery else 0
        self._broker.reply_behind(session, ticket, f"{step.says} {command.topic} {command.word}")

    def pubcomp(self, session: Session, command: commands.Pubcomp, now_ms: int) -> None:
        """The client is done with an event: that it was taken need not be known any longer."""
        delivery = self._delivery(session, command.topic, command.ref)
        step = checked(Half.BROKER_CONSUMING, delivery.state if delivery else State.NOTHING, Step.PUBCOMP)
        if delivery is not None and delivery.state is State.TAKEN:
            delivery.state = step.state
            self._books.of(session.name).finish((delivery.topic, delivery.name, delivery.offset))
            delivery.ticket = self._broker.work.keep(
                FinishedRecord(session.name, delivery.topic, delivery.name, delivery.offset)
            )
        self._broker.reply_behind(
            session, delivery.ticket if delivery else 0, f"{step.says} {command.topic} {command.word}"
        )
        if delivery is not None:
            self._make_room(session, delivery, now_ms)

    def attach(self, consumer: Consumer) -> None:
        """What a client has taken and is not done with counts as in flight on its new connection."""
        book = self._books.known(consumer.session.name)
        sub = consumer.subscription
        if book is not None and sub.policy.qos == 2:
            for one in book.open.values():
                if (one.topic, one.name) == (sub.topic, sub.name):
                    consumer.note_taken(one.offset)

    def forget(self, topic: str, name: str) -> None:
        """A subscription has ended."""
        for book in self._books:
            for entries in (book.open, book.finished):
                for key in [key for key in entries if key[:2] == (topic, name)]:
                    del entries[key]

    def _take(self, client: str, consumer: Consumer, offset: int, state: State) -> TakenEvent:
        sub = consumer.subscription
        lines = self._broker.topics[sub.topic].recent.lines([offset])
        delivery = TakenEvent(client, sub.topic, sub.name, offset, line_id(lines[0]) if lines else "", state)
        self._books.of(client).add((sub.topic, sub.name, offset), delivery)
        delivery.ticket = self._broker.work.keep(TakenRecord(client, sub.topic, sub.name, offset, delivery.id))
        consumer.note_taken(offset)
        return delivery

    def _make_room(self, session: Session, delivery: TakenEvent, now_ms: int) -> None:
        consumer = session.consumers.get((delivery.topic, delivery.name))
        if consumer is not None and consumer.note_done(delivery.offset):
            self._broker.delivery.pump(consumer.subscription, now_ms)

    def _delivery(self, session: Session, topic: str, ref: int | str, *, is_new: bool = False) -> TakenEvent | None:
        """Find what a client has taken, the oldest one where several have the id; what is open before what is finished.

        One that `is_new` is looked for among those of the connection's own subscriptions only.
        """
        book = self._books.known(session.name)
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

    def report(self) -> dict[str, int]:
        """Return how many events are taken and not finished."""
        return {"taken": self._books.open_count()}

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
            for one in book.entries():
                yield TakenRecord(one.client, one.topic, one.name, one.offset, one.id)
                if one.state is State.SETTLED:
                    yield FinishedRecord(one.client, one.topic, one.name, one.offset)

    def restore_taken(self, record: TakenRecord) -> None:
        """An event was taken."""
        taken = TakenEvent(record.client, record.topic, record.name, record.offset, record.id, State.TAKEN)
        self._books.of(record.client).open[record.topic, record.name, record.offset] = taken

    def restore_finished(self, record: FinishedRecord) -> None:
        """An event that was taken was finished."""
        book, key = self._books.of(record.client), (record.topic, record.name, record.offset)
        if (taken := book.open.get(key)) is not None:
            taken.state = State.SETTLED
            book.finish(key)
