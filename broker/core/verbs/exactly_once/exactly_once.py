"""Route each handshake step of a client to the publishing or the consuming half.

Always true: only a client's newest connection takes steps. A step that is still in the buffers of an older connection must not
count.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from broker.core.delivery.delivery import Delivery
from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.topic.subscription import Consumer
from broker.core.topic.topic import Topic
from broker.core.verbs.exactly_once.held import HeldMessages
from broker.core.verbs.exactly_once.taken import TakenEvents
from broker.core.verbs.handler import Handlers
from broker.core.verbs.references import References
from broker.journal.records import FinishedRecord, HandshakeRecord, HeldRecord, ReleasedRecord, TakenRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs import exactly_once as commands

__all__ = ["ExactlyOnce"]

CLIENTS_MAX: Final = 10_000


class ExactlyOnce:
    """The handshakes of all clients."""

    def __init__(self, desk: Desk, delivery: Delivery, references: References) -> None:
        self._desk = desk
        self._references = references
        self._held = HeldMessages(desk)
        self._taken = TakenEvents(desk, delivery, references)
        # The number of each client's newest connection that took a step
        self._newest: dict[str, int] = {}
        self.handlers: Handlers = {
            commands.Pub2: self.pub2,
            commands.Pubrel: self.pubrel,
            commands.Pubrec: self.pubrec,
            commands.Pubcomp: self.pubcomp,
        }

    def report(self) -> dict[str, int]:
        """Return how many handshakes are in each state that is not final."""
        return self._held.report() | self._taken.report()

    def pub2(self, session: Session, command: commands.Pub2, now_ms: int) -> None:
        """Hold a message for its client."""
        self._check(session)
        self._held.hold(session, command, now_ms)

    def pubrel(self, session: Session, command: commands.Pubrel, now_ms: int) -> None:
        """Store a message that is held, or confirm again that it is stored."""
        self._check(session)
        self._held.release(session, command, now_ms)

    def pubrec(self, session: Session, command: commands.Pubrec, now_ms: int) -> None:
        """Settle an event that the client has on its disk."""
        if self._references.is_learning(
            session, command.topic, [command.ref], lambda: self.pubrec(session, command, now_ms)
        ):
            return
        self._check(session)
        self._taken.settle_taken(session, command)

    def pubcomp(self, session: Session, command: commands.Pubcomp, now_ms: int) -> None:
        """Finish a handshake: the client has processed the event."""
        self._check(session)
        self._taken.finish(session, command, now_ms)

    def note_written(self, topic: Topic) -> None:
        """Note that a topic's log has all visible events."""
        self._held.note_written(topic)

    def note_unwritten(self, topic: Topic) -> None:
        """Note that a topic's log lacks the events that are not visible: their messages must be released again."""
        self._held.note_unwritten(topic)

    def attach(self, consumer: Consumer) -> None:
        """Count the client's taken and unfinished events as in flight on its new connection."""
        self._taken.attach(consumer)

    def forget_subscription(self, topic: str, name: str) -> None:
        """Forget the events taken from a subscription that has ended."""
        self._taken.forget_subscription(topic, name)

    def forget_topic(self, topic: str) -> None:
        """Forget all handshakes about a dropped topic."""
        self._held.forget_topic(topic)
        self._taken.forget_topic(topic)

    def records(self) -> Iterator[HandshakeRecord]:
        """Yield the records that the journal must keep."""
        yield from self._held.records()
        yield from self._taken.records()

    def restore_handshakes(self, records: Iterable[HandshakeRecord]) -> None:
        """Restore the handshakes from `records`. The open logs show which released messages they have."""
        for record in records:
            if record.topic in self._desk.topics.by_name:
                self._restore_one(record)
        self._held.decide()

    def _restore_one(self, record: HandshakeRecord) -> None:
        match record:
            case HeldRecord():
                self._held.restore_held(record)
            case ReleasedRecord():
                self._held.restore_released(record)
            case TakenRecord():
                self._taken.restore_taken(record)
            case FinishedRecord():
                self._taken.restore_finished(record)

    def _check(self, session: Session) -> None:
        """Raise Refusal on a connection that is not its client's newest, and for a client without a name."""
        if not session.is_named:
            raise Refusal("bad_arguments", "say hello <name> first: a handshake is kept under the client's name")
        if session.number < self._newest.get(session.name, 0):
            raise Refusal("forbidden", f"a newer connection of {session.name} continues its handshakes")
        self._newest[session.name] = session.number
        if len(self._newest) > CLIENTS_MAX:
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Forget the finished handshakes of some clients: the oldest half of those without an open handshake."""
        busy = self._held.busy() | self._taken.busy()
        idle = [name for name in self._newest if name not in busy]
        for name in idle[: len(idle) // 2]:
            del self._newest[name]
            self._held.forget_client(name)
            self._taken.forget_client(name)
