"""The blocking client's halves of the exactly-once handshakes: the same files and the same steps as the async client's.

Always true: a state is on this disk before what follows from it is said. A connection that is lost in the middle leaves
everything in the spool, and the next client with this name and folder goes on.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final

import structlog
from msgspec import structs

from broker.errors import BrokerError, HandshakeFailed, Refusal
from broker.events import Event, StoredEvent, encode_event
from broker.handshakes import Spool
from broker.handshakes.spool import Incoming, Outgoing
from broker.handshakes.steps import PAUSES_S, TRIES, moved
from broker.handshakes.taking import TOGETHER, Taking
from broker.protocol import replies
from broker.protocol.handshakes import Half, State, Step
from broker.protocol.replies import Receipt
from broker.sync_client.connection import Connection
from broker.sync_client.subscription import SyncSubscription

__all__ = ["SyncExactlyOnceSubscription", "SyncPublishing"]

HALF: Final = Half.CLIENT_PUBLISHING
BYTES_TOGETHER: Final = 8 << 20
"""So many of messages are held by the broker at once: an eighth of what it holds of all clients."""

logger = structlog.stdlib.get_logger()


class SyncPublishing:
    """Publishes what is given, and what a process before this one has left in the spool."""

    def __init__(self, connection: Connection, spool: Spool) -> None:
        self._connection = connection
        self._spool = spool

    def publish_many(self, topic: str, events: Sequence[Event]) -> list[Receipt]:
        """Have events stored once. Raises Refusal or HandshakeFailed with the first that failed, when all have been tried."""
        state = moved(HALF, State.NOTHING, Step.PUBLISH).state
        keys = [(topic, event.id) for event in events]
        new = {
            key: Outgoing(topic, event.id, encode_event(event).decode(), state)
            for key, event in zip(keys, events, strict=True)
            if key not in self._spool.outgoing
        }
        self._spool.put(new.values())
        results = self._carry_over(list(dict.fromkeys(keys)))
        failed = next((result for result in results.values() if isinstance(result, BrokerError)), None)
        if failed is not None:
            raise failed
        return [result for key in keys if isinstance(result := results[key], Receipt)]

    def resume(self) -> None:
        """Send what was left."""
        left = list(self._spool.outgoing)
        if left:
            logger.info("sending messages that were left", messages=len(left))
        for key, result in self._carry_over(left).items():
            if isinstance(result, BrokerError):
                logger.error("a message that was left could not be sent", topic=key[0], id=key[1], reason=str(result))

    def _carry_over(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Receipt | BrokerError]:
        """Shake hands over messages that are in the spool; returns what became of each."""
        results: dict[tuple[str, str], Receipt | BrokerError] = {}
        for chunk in self._side_by_side(keys):
            while waiting := [self._spool.outgoing[key] for key in chunk if key not in results]:
                self._spool.sync_now()
                self._hold([one for one in waiting if one.state is State.KEPT], results)
                self._spool.sync_now()
                held = [self._spool.outgoing[one.key] for one in waiting if one.key not in results]
                self._release(held, results)
        return results

    def _side_by_side(self, keys: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
        chunk: list[tuple[str, str]] = []
        size = 0
        for key in keys:
            chunk.append(key)
            size += len(self._spool.outgoing[key].event)
            if len(chunk) == TOGETHER or size >= BYTES_TOGETHER:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _hold(self, messages: list[Outgoing], results: dict[tuple[str, str], Receipt | BrokerError]) -> None:
        lines = [f"pub2 {one.topic} {one.event}\n".encode() for one in messages]
        for message, answer in zip(messages, _say_all(self._connection, lines), strict=True):
            if isinstance(answer, bytes):
                self._move(message, Step.REC)
            else:
                results[message.key] = answer
                if isinstance(answer, Refusal):
                    self._spool.put([structs.replace(message, state=State.CONFIRMED)])

    def _release(self, messages: list[Outgoing], results: dict[tuple[str, str], Receipt | BrokerError]) -> None:
        lines = [f"pubrel {one.topic} {one.id}\n".encode() for one in messages]
        for message, answer in zip(messages, _say_all(self._connection, lines), strict=True):
            if isinstance(answer, bytes):
                self._move(message, Step.COMP)
                results[message.key] = replies.completion(answer)
            elif isinstance(answer, Refusal) and answer.code == "no_event":
                self._move(message, Step.NO_EVENT)
            else:
                results[message.key] = answer

    def _move(self, message: Outgoing, step: Step) -> None:
        self._spool.put([structs.replace(message, state=moved(HALF, message.state, step).state)])


class SyncExactlyOnceSubscription(SyncSubscription):
    """Hands each event over once; see `SyncSubscription`, whose `nack` and `extend` this one has not."""

    def __init__(self, connection: Connection, topic: str, name: str, spool: Spool) -> None:
        super().__init__(connection, topic, name)
        self._spool = spool
        self._taking = Taking(spool, topic, name)
        self._arrived: list[StoredEvent] = []
        self._acked: list[Incoming] = []

    def deliver(self, event: StoredEvent) -> None:
        """The client's: an event has come; it is handed over when it has been taken."""
        self._arrived.append(event)

    def resume(self) -> None:
        """Go on with what a process before this one has left. Raises Refusal, HandshakeFailed, BrokerLost."""
        left = self._taking.left()
        self._events.extend(left.owned)
        self._finish(left.acked)
        self._take(left.arrived)

    def end(self) -> None:
        """The client's: it was unsubscribed; what the broker has forgotten need not be finished."""
        self._taking.forget()
        self._acked = []
        super().end()

    def ack(self, events: Sequence[StoredEvent]) -> None:
        """Say that the application is done with events: first on this disk, then to the broker.

        What the broker does not settle now, HandshakeFailed after five tries, is said again with the next ack, or by the next
        client; what it refuses for good, Refusal, by the next client only. Raises also what `take` raises: what comes in
        their place is taken here.
        """
        acked = self._taking.acked(events)
        self.stale += len(events) - len(acked)
        self._spool.sync_now()
        self._finish(acked)
        self._take_arrived()

    def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """There is no giving back what this client has taken. Raises ValueError."""
        raise ValueError("an event of a subscription with qos=2 is this client's alone, and cannot be given back")

    def extend(self, events: Sequence[StoredEvent]) -> None:
        """Nothing to do: what was taken has no timer."""

    def _is_filled(self) -> bool:
        self._take_arrived()
        return super()._is_filled()

    def _take_arrived(self) -> None:
        """Take all that is here, also what nobody has asked for yet: until an event is taken its timer runs."""
        while self._connection.events(0):
            pass
        while self._arrived:
            batch, self._arrived = self._arrived[:TOGETHER], self._arrived[TOGETHER:]
            self._take(self._taking.arrived(batch))

    def _take(self, entries: list[Incoming]) -> None:
        if not entries:
            return
        self._spool.sync_now()
        steps, failures = self._say("pubrec", entries, Step.REL)
        given, acked = self._taking.taken(steps)
        self._spool.sync_now()
        self._events.extend(given)
        self._finish(acked)
        _raise(failures)

    def _finish(self, entries: list[Incoming]) -> None:
        """Have the broker settle what is acked, beginning with what it did not settle before."""
        self._acked += entries
        while chunk := self._acked[:TOGETHER]:
            steps, failures = self._say("pubcomp", chunk, Step.OK_COMP)
            self._taking.finished(steps)
            # What is refused for good would be refused with every later ack as well, and keep others from their turn.
            again = {entry.key for entry, failure in failures if isinstance(failure, HandshakeFailed)}
            self._acked = [entry for entry in chunk if entry.key in again] + self._acked[len(chunk) :]
            _raise(failures)

    def _say(
        self, verb: str, entries: list[Incoming], answer: Step
    ) -> tuple[list[tuple[Incoming, Step]], list[tuple[Incoming, BrokerError]]]:
        """Say a step of many events; returns what each came to, and why others came to nothing."""
        answers = _say_all(self._connection, [f"{verb} {self.topic} @{one.offset}\n".encode() for one in entries])
        steps: list[tuple[Incoming, Step]] = []
        failures: list[tuple[Incoming, BrokerError]] = []
        for entry, said in zip(entries, answers, strict=True):
            if isinstance(said, bytes):
                steps.append((entry, answer))
            elif isinstance(said, Refusal) and said.code == "stale":
                steps.append((entry, Step.STALE))
            else:
                failures.append((entry, said))
        return steps, failures


def _say_all(connection: Connection, lines: list[bytes]) -> list[bytes | Refusal | HandshakeFailed]:
    """Say steps until each is answered or `TRIES` were in vain; a lost connection ends it at once. Raises BrokerLost."""
    answers: dict[int, bytes | Refusal | HandshakeFailed] = {}
    for number, pause_s in enumerate(PAUSES_S, 1):
        left = [place for place in range(len(lines)) if place not in answers]
        if not left:
            break
        time.sleep(pause_s)
        for place, said in zip(left, connection.ask_all([lines[place] for place in left]), strict=True):
            if not isinstance(said, Refusal) or not said.is_retryable:
                answers[place] = said
            elif number == TRIES:
                verb, topic, *_ = lines[place].decode().split(" ", 2)
                answers[place] = HandshakeFailed(f"{verb} {topic}", TRIES, str(said))
    return [answers[place] for place in range(len(lines))]


def _raise(failures: list[tuple[Incoming, BrokerError]]) -> None:
    if failures:
        raise failures[0][1]
