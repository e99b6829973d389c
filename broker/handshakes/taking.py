"""What becomes of the events of one subscription with ``qos=2``, as this client's disk has it; decided without I/O of its own.

Always true: a state is in the spool before anything that follows from it is said or done. Whoever drives this says the steps,
waits for the disk (`Spool.sync`) after each of the methods that say so, and only then goes on.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from broker.events import StoredEvent, decode_stored
from broker.handshakes.spool import Incoming, Spool
from broker.handshakes.steps import moved
from broker.protocol.handshakes import Half, State, Step

__all__ = ["TOGETHER", "Left", "Taking"]

HALF: Final = Half.CLIENT_CONSUMING
TOGETHER: Final = 500
"""So many events take their steps side by side, and share the syncs of the disk."""


class Left(NamedTuple):
    """What a process before this one has left: to take, to hand over once more, to finish."""

    arrived: list[Incoming]
    owned: list[StoredEvent]
    acked: list[Incoming]


class Taking:
    """The events of subscription `name` on `topic` that are in the spool."""

    def __init__(self, spool: Spool, topic: str, name: str) -> None:
        self._spool = spool
        self._place = topic, name

    def left(self) -> Left:
        """Return what is to be gone on with; what was handed over before has its `attempt` raised."""
        mine = self._mine()
        return Left(
            [entry for entry in mine if entry.state is State.ARRIVED],
            [_given_again(entry) for entry in mine if entry.state is State.OWNED],
            [entry for entry in mine if entry.state is State.ACKED],
        )

    def arrived(self, events: Iterable[StoredEvent]) -> list[Incoming]:
        """Events have come: returns what is to be taken from the broker, when the disk has it."""
        # By key: an event whose timer ran out while it waited here stands beside itself.
        by_key = {self._key(event): event for event in events}
        entries = {key: self._spool.incoming.get(key) or self._new(event) for key, event in by_key.items()}
        self._spool.put(entry for key, entry in entries.items() if key not in self._spool.incoming)
        return list(entries.values())

    def taken(self, steps: Sequence[tuple[Incoming, Step]]) -> tuple[list[StoredEvent], list[Incoming]]:
        """The broker has answered: returns what is to be handed over, and what is to be finished, when the disk has it."""
        after = [structs.replace(entry, state=moved(HALF, entry.state, step).state) for entry, step in steps]
        self._spool.put(after)
        given = [
            _event(entry)
            for (before, _), entry in zip(steps, after, strict=True)
            if (before.state, entry.state) == (State.ARRIVED, State.OWNED)
        ]
        return given, [entry for entry in after if entry.state is State.ACKED]

    def acked(self, events: Sequence[StoredEvent]) -> list[Incoming]:
        """The application is done with events: returns those that were its own, to be finished when the disk has it."""
        known = [self._spool.incoming.get(self._key(event)) for event in events]
        owned = [entry for entry in known if entry is not None and entry.state is State.OWNED]
        acked = [structs.replace(entry, state=moved(HALF, entry.state, Step.ACK).state) for entry in owned]
        self._spool.put(acked)
        return acked

    def finished(self, steps: Iterable[tuple[Incoming, Step]]) -> None:
        """The broker has answered: what is done is forgotten."""
        self._spool.put(structs.replace(one, state=moved(HALF, one.state, step).state) for one, step in steps)

    def forget(self) -> None:
        """The broker has forgotten the subscription, so there is nothing to finish."""
        self._spool.put([structs.replace(entry, state=State.CONFIRMED) for entry in self._mine()])

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
