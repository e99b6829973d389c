"""The client's half of exactly-once consuming, for one subscription with ``qos=2``.

An event is written to the client's disk, then taken from the broker, and then handed over to the application. An ack is
written to the disk before the broker is asked to settle the event. So an event is handed over once, even if the connection
or the broker is lost. If this process dies after handing an event over and before its ack, the next process hands it over
again with an `attempt` above 1. Only the application can know whether it has processed such an event.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from tweetwire.client.exactly_once.spool import Incoming, Spool
from tweetwire.client.exactly_once.steps import TOGETHER, Handshake, Sync, moved, say_all
from tweetwire.protocol import requests
from tweetwire.protocol.errors import BrokerError, Refusal
from tweetwire.protocol.events import StoredEvent, decode_stored
from tweetwire.protocol.handshakes import Half, State, Step

__all__ = ["Left", "OnceConsuming", "TakeOutcome"]

HALF: Final = Half.CLIENT_CONSUMING

Failures: TypeAlias = list[tuple[Incoming, BrokerError]]


class Left(NamedTuple):
    """The events that an earlier process left: those to take, to hand over again, and to finish."""

    arrived: list[Incoming]
    owned: list[StoredEvent]
    acked: list[Incoming]


class TakeOutcome(NamedTuple):
    """The result of taking events: those to hand over, those to finish, and the errors of the others."""

    given: list[StoredEvent]
    acked: list[Incoming]
    failures: Failures


class OnceConsuming:
    """The events of the subscription `name` to `topic` that are in `spool`, and arrived events that are not yet in it."""

    def __init__(self, spool: Spool, topic: str, name: str) -> None:
        self._spool = spool
        self._place = topic, name
        self._arrived: list[StoredEvent] = []

    def left(self) -> Left:
        """Return the events that an earlier process left. Those handed over before have a higher `attempt`."""
        mine = self._mine()
        return Left(
            [entry for entry in mine if entry.state is State.ARRIVED],
            [_given_again(entry) for entry in mine if entry.state is State.OWNED],
            [entry for entry in mine if entry.state is State.ACKED],
        )

    def arrive(self, events: list[StoredEvent], prefetch: int) -> None:
        """Queue arrived events. If there are more than `prefetch`, the oldest have timed out and are dropped."""
        self._arrived += events
        del self._arrived[:-prefetch]

    def drop_arrived(self) -> None:
        """Drop arrived events after the connection is lost: the broker delivers them again."""
        self._arrived = []

    def next_arrived(self) -> list[Incoming]:
        """Put the next arrived events into the spool, and return their entries, to be taken from the broker."""
        batch, self._arrived = self._arrived[:TOGETHER], self._arrived[TOGETHER:]
        if not batch:
            return []
        # Store the events by key, because an event that timed out while it waited here was delivered again and is here twice.
        by_key = {self._key(event): event for event in batch}
        entries = {key: self._spool.incoming.get(key) or self._new(event) for key, event in by_key.items()}
        self._spool.put(entry for key, entry in entries.items() if key not in self._spool.incoming)
        return list(entries.values())

    def take(self, entries: Sequence[Incoming]) -> Handshake[TakeOutcome]:
        """Take events from the broker. The client may then hand them over to the application."""
        yield Sync()
        steps, failures = yield from self._say("pubrec", entries, Step.REL)
        after = [structs.replace(entry, state=moved(HALF, entry.state, step).state) for entry, step in steps]
        self._spool.put(after)
        yield Sync()
        given = [
            _event(entry)
            for (before, _), entry in zip(steps, after, strict=True)
            if (before.state, entry.state) == (State.ARRIVED, State.OWNED)
        ]
        return TakeOutcome(given, [entry for entry in after if entry.state is State.ACKED], failures)

    def ack(self, events: Sequence[StoredEvent]) -> list[Incoming]:
        """Put acks into the spool. Returns the entries to finish, without events that this client does not own."""
        known = [self._spool.incoming.get(self._key(event)) for event in events]
        owned = [entry for entry in known if entry is not None and entry.state is State.OWNED]
        acked = [structs.replace(entry, state=moved(HALF, entry.state, Step.ACK).state) for entry in owned]
        self._spool.put(acked)
        return acked

    def finish(self, entries: Sequence[Incoming]) -> Handshake[Failures]:
        """Make the broker settle acked events, and remove these from the spool. Returns the failures."""
        yield Sync()
        steps, failures = yield from self._say("pubcomp", entries, Step.OK_COMP)
        self._spool.put(structs.replace(one, state=moved(HALF, one.state, step).state) for one, step in steps)
        return failures

    def forget(self) -> None:
        """Remove the subscription's events from the spool, because the broker has ended the subscription."""
        self._spool.put([structs.replace(entry, state=State.CONFIRMED) for entry in self._mine()])

    def _say(
        self, verb: str, entries: Sequence[Incoming], answer: Step
    ) -> Handshake[tuple[list[tuple[Incoming, Step]], Failures]]:
        said = yield from say_all([requests.step_line(verb, entry.topic, entry.offset) for entry in entries])
        steps: list[tuple[Incoming, Step]] = []
        failures: Failures = []
        for entry, one in zip(entries, said, strict=True):
            if isinstance(one, bytes):
                steps.append((entry, answer))
            elif isinstance(one, Refusal) and one.code == "stale":
                steps.append((entry, Step.STALE))
            else:
                failures.append((entry, one))
        return steps, failures

    def _mine(self) -> list[Incoming]:
        return [entry for entry in self._spool.incoming.values() if entry.key[:2] == self._place]

    def _key(self, event: StoredEvent) -> tuple[str, str, int]:
        return *self._place, event.offset

    def _new(self, event: StoredEvent) -> Incoming:
        line = msgspec.json.encode(event).decode()
        return Incoming(*self._key(event), line, moved(HALF, State.NOTHING, Step.EVENT).state)


def _event(entry: Incoming) -> StoredEvent:
    return decode_stored(entry.line.encode())


def _given_again(entry: Incoming) -> StoredEvent:
    event = _event(entry)
    return structs.replace(event, attempt=event.attempt + 1)
