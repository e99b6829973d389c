"""Whose handshakes they are, and the way of a step to the half that it belongs to.

Always true: a client's newest connection alone takes steps, since one that an older connection has still in its buffers must
not count.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from broker.core.consumer import Consumer
from broker.core.handshakes.consuming import TakenEvents
from broker.core.handshakes.publishing import HeldMessages
from broker.core.session import Session
from broker.core.topic import Topic
from broker.errors import Refusal
from broker.protocol import commands
from broker.state import FinishedRecord, HandshakeRecord, HeldRecord, ReleasedRecord, TakenRecord

if TYPE_CHECKING:
    from broker.core.broker import Broker

__all__ = ["Handshakes"]

CLIENTS_MAX: Final = 10_000


class Handshakes:
    """All open handshakes, by client."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._held = HeldMessages(broker)
        self._taken = TakenEvents(broker)
        self._newest: dict[str, int] = {}

    def report(self) -> dict[str, int]:
        """Return how many messages stand in each state that is not an end."""
        return self._held.report() | self._taken.report()

    def pub2(self, session: Session, command: commands.Pub2, now_ms: int) -> None:
        """Hold a message for its client."""
        self._check(session)
        self._held.pub2(session, command)

    def pubrel(self, session: Session, command: commands.Pubrel, now_ms: int) -> None:
        """Store a message that is held; where it is stored already, say so again."""
        self._check(session)
        self._held.pubrel(session, command, now_ms)

    def pubrec(self, session: Session, command: commands.Pubrec, now_ms: int) -> None:
        """The client has an event on its disk: it is not given again, to nobody."""
        self._check(session)
        self._taken.pubrec(session, command)

    def pubcomp(self, session: Session, command: commands.Pubcomp, now_ms: int) -> None:
        """The client is done with an event: that it was taken need not be known any longer."""
        self._check(session)
        self._taken.pubcomp(session, command, now_ms)

    def written(self, topic: Topic) -> None:
        """The log of a topic has what is visible now."""
        self._held.written(topic)

    def not_written(self, topic: Topic) -> None:
        """What is not visible now is not in the log and must be released once more."""
        self._held.not_written(topic)

    def attach(self, consumer: Consumer) -> None:
        """What a client has taken and is not done with counts as in flight on its new connection."""
        self._taken.attach(consumer)

    def forget(self, topic: str, name: str) -> None:
        """A subscription has ended."""
        self._taken.forget(topic, name)

    def records(self) -> Iterator[HandshakeRecord]:
        """Yield what must be kept of all of it."""
        yield from self._held.records()
        yield from self._taken.records()

    def restore(self, records: Iterable[HandshakeRecord]) -> None:
        """Stand where `records` say; the logs, which are open, tell what of the released messages they have."""
        for record in records:
            if record.topic in self._broker.topics:
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
        """Raise Refusal where no name was said, which handshakes are kept under, and on an older connection."""
        if not session.is_named:
            raise Refusal("bad_arguments", "say hello <name> first: a handshake is kept under the client's name")
        if session.number < self._newest.get(session.name, 0):
            raise Refusal("forbidden", f"a newer connection of {session.name} goes on with its handshakes")
        self._newest[session.name] = session.number
        if len(self._newest) > CLIENTS_MAX:
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Forget what is finished of the clients that have nothing open, those first that came first."""
        busy = self._held.busy() | self._taken.busy()
        idle = [name for name in self._newest if name not in busy]
        for name in idle[: len(idle) // 2]:
            del self._newest[name]
            self._held.forget_client(name)
            self._taken.forget_client(name)
