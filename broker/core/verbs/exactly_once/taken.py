"""Events that are consumed exactly once: a client takes each, and then finishes it.

Always true: an event is settled in its subscription when it is taken, so it is not delivered again. Until it is finished, it
counts as in flight on the newest connection of the client that has it.
"""

from collections.abc import Iterator

from msgspec import Struct

from broker.core.delivery.delivery import Delivery
from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.topic.subscription import Consumer
from broker.core.verbs.exactly_once.books import Books
from broker.core.verbs.exactly_once.steps import checked
from broker.core.verbs.references import References
from broker.journal.records import FinishedRecord, HandshakeRecord, TakenRecord
from tweetwire.protocol.event_lines import line_id
from tweetwire.protocol.handshakes import Half, State, Step
from tweetwire.protocol.verbs import exactly_once as commands

__all__ = ["TakenEvents"]


class TakenEvent(Struct):
    """An event that a client has taken, and perhaps finished. `id` is empty if it is no longer known."""

    client: str
    topic: str
    name: str
    offset: int
    id: str
    state: State
    ticket: int = 0


class TakenEvents:
    """The events that all clients have taken. The caller has checked that a client may take a step."""

    def __init__(self, desk: Desk, delivery: Delivery, references: References) -> None:
        self._desk = desk
        self._delivery = delivery
        self._references = references
        self._books: Books[tuple[str, str, int], TakenEvent] = Books()

    def settle_taken(self, session: Session, command: commands.Pubrec) -> None:
        """Settle an event that the client has on its disk."""
        in_flight = self._in_flight(session, command.topic, command.ref)
        taken = self._taken_event(
            session, command.topic, in_flight[1] if in_flight else command.ref, is_new=bool(in_flight)
        )
        state = taken.state if taken else State.IN_FLIGHT if in_flight else State.NOTHING
        step = checked(Half.BROKER_CONSUMING, state, Step.PUBREC)
        if taken is None and in_flight is not None:
            taken = self._note_taken(session.name, *in_flight, step.state)
        if in_flight is not None:
            self._delivery.settle(in_flight[0], [in_flight[1]])
        ticket = taken.ticket if taken else 0
        self._desk.reply_after_record(session, ticket, f"{step.says} {command.topic} {command.word}")

    def finish(self, session: Session, command: commands.Pubcomp, now_ms: int) -> None:
        """Finish an event that the client has processed."""
        taken = self._taken_event(session, command.topic, command.ref)
        step = checked(Half.BROKER_CONSUMING, taken.state if taken else State.NOTHING, Step.PUBCOMP)
        if taken is not None and taken.state is State.TAKEN:
            taken.state = step.state
            self._books.made_for(session.name).finish((taken.topic, taken.name, taken.offset))
            taken.ticket = self._desk.work.keep(FinishedRecord(session.name, taken.topic, taken.name, taken.offset))
        self._desk.reply_after_record(
            session, taken.ticket if taken else 0, f"{step.says} {command.topic} {command.word}"
        )
        if taken is not None:
            self._make_room(session, taken, now_ms)

    def attach(self, consumer: Consumer) -> None:
        """Count the client's taken and unfinished events as in flight on its new connection."""
        book = self._books.known(consumer.session.name)
        sub = consumer.subscription
        if book is not None and sub.policy.qos == 2:
            for one in book.open.values():
                if (one.topic, one.name) == (sub.topic, sub.name):
                    consumer.note_taken(one.offset)

    def forget_subscription(self, topic: str, name: str) -> None:
        """Forget the events taken from a subscription that has ended."""
        for book in self._books:
            book.forget_keys(lambda key: key[:2] == (topic, name))

    def forget_topic(self, topic: str) -> None:
        """Forget the events taken from a dropped topic."""
        for book in self._books:
            book.forget_keys(lambda key: key[0] == topic)

    def _note_taken(self, client: str, consumer: Consumer, offset: int, state: State) -> TakenEvent:
        sub = consumer.subscription
        lines = self._desk.topics.by_name[sub.topic].recent.lines([offset])
        taken = TakenEvent(client, sub.topic, sub.name, offset, line_id(lines[0]) if lines else "", state)
        self._books.made_for(client).add((sub.topic, sub.name, offset), taken)
        taken.ticket = self._desk.work.keep(TakenRecord(client, sub.topic, sub.name, offset, taken.id))
        consumer.note_taken(offset)
        return taken

    def _make_room(self, session: Session, taken: TakenEvent, now_ms: int) -> None:
        consumer = session.consumer_of(taken.topic, taken.name)
        if consumer is not None and consumer.note_finished(taken.offset):
            self._delivery.pump(consumer.subscription, now_ms)

    def _taken_event(self, session: Session, topic: str, ref: int | str, *, is_new: bool = False) -> TakenEvent | None:
        """Find an event that a client has taken: an open one before a finished one, and the oldest if several have the id.

        If the event `is_new`, only the connection's own subscriptions are looked at.
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
        """Find an event in flight on this connection, on a subscription with ``qos=2``."""
        for consumer in session.consumers_of(topic):
            if consumer.subscription.policy.qos == 2:
                offset = self._references.in_flight(consumer, ref)
                if offset is not None:
                    return consumer, offset
        return None

    def report(self) -> dict[str, int]:
        """Return how many events are taken and not finished."""
        return {"taken": self._books.open_count()}

    def busy(self) -> set[str]:
        """Return the clients that have open handshakes."""
        return self._books.busy()

    def forget_client(self, client: str) -> None:
        """Forget a client's finished handshakes."""
        self._books.forget(client)

    # Records

    def records(self) -> Iterator[HandshakeRecord]:
        """Yield the records that the journal must keep."""
        for book in self._books:
            for one in book.entries():
                yield TakenRecord(one.client, one.topic, one.name, one.offset, one.id)
                if one.state is State.SETTLED:
                    yield FinishedRecord(one.client, one.topic, one.name, one.offset)

    def restore_taken(self, record: TakenRecord) -> None:
        """Restore an event that was taken."""
        taken = TakenEvent(record.client, record.topic, record.name, record.offset, record.id, State.TAKEN)
        self._books.made_for(record.client).open[record.topic, record.name, record.offset] = taken

    def restore_finished(self, record: FinishedRecord) -> None:
        """Restore a taken event as finished."""
        book, key = self._books.made_for(record.client), (record.topic, record.name, record.offset)
        if (taken := book.open.get(key)) is not None:
            taken.state = State.SETTLED
            book.finish(key)
