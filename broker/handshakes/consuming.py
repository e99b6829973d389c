"""The client's half of exactly-once consuming: a subscription with ``qos=2``.

An event is written to the client's disk, taken from the broker, and only then handed over; what the application acks is
written down before the broker is told. So an event is handed over once, whatever becomes of the connection or the broker. If
this process dies between handing an event over and its ack, only the application knows what it has done: the event is
handed over again by the next process, with an `attempt` above 1.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from msgspec import structs

from broker.client.subscription import Start, Subscription
from broker.errors import BrokerError, HandshakeFailed, Refusal
from broker.events import StoredEvent, decode_stored
from broker.handshakes.spool import Incoming, Spool
from broker.handshakes.steps import moved, say
from broker.protocol.handshakes import Half, State, Step

if TYPE_CHECKING:
    from broker.client.link import Link

__all__ = ["ExactlyOnceSubscription"]

HALF: Final = Half.CLIENT_CONSUMING
TOGETHER: Final = 500
"""So many events take their steps side by side, and share the syncs of the disk."""


class ExactlyOnceSubscription(Subscription):
    """Hands each event over once; see `Subscription`, whose `ack` this one has, and whose `nack` and `extend` it has not."""

    def __init__(
        self, link: "Link", topic: str, name: str, start: Start, options: str, *, spool: Spool, answer_s: float
    ) -> None:
        super().__init__(link, topic, name, start, f"{options} qos=2")
        self._ask = link.ask
        self._spool = spool
        self._answer_s = answer_s
        self._arrived: list[StoredEvent] = []
        self._acked: list[Incoming] = []
        self._has_arrived = anyio.Event()
        self._has_acked = anyio.Event()
        self._scope = anyio.CancelScope()

    def deliver(self, events: list[StoredEvent]) -> None:
        """The client's: events have come; they are handed over when they have been taken."""
        self._arrived += events
        self._has_arrived.set()

    def resume_line(self) -> bytes:
        """The command that goes on with it on a new connection: what was not taken comes again, what was is here."""
        self._arrived = []
        return self.line()

    def end(self, error: BrokerError | None = None) -> None:
        """The client's: it was unsubscribed, or cannot go on; what the broker has forgotten need not be finished."""
        self._scope.cancel()
        if error is None:
            self._spool.put([structs.replace(entry, state=State.CONFIRMED) for entry in self._mine()])
        super().end(error)

    async def resume(self) -> None:
        """Go on with what a process before this one has left. Raises HandshakeFailed, Refusal."""
        left = self._mine()
        owned = [entry for entry in left if entry.state is State.OWNED]
        self._hand_over([structs.replace(_event(entry), attempt=_event(entry).attempt + 1) for entry in owned])
        self._complete_later([entry for entry in left if entry.state is State.ACKED])
        await self._take([entry for entry in left if entry.state is State.ARRIVED])

    async def serve(self) -> None:
        """Take what arrives and finish what is acked, until the end; a handshake that fails ends the subscription."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._take_all)
                    tasks.start_soon(self._finish_all)
        except* BrokerError as group:
            self.end(_first(group))

    async def ack(self, events: Sequence[StoredEvent]) -> None:
        """Say that the application is done with events. Returns when this disk has it; the broker is told behind it."""
        known = [self._spool.incoming.get(self._key(event)) for event in events]
        owned = [entry for entry in known if entry is not None and entry.state is State.OWNED]
        self.stale += len(events) - len(owned)
        acked = [structs.replace(entry, state=moved(HALF, entry.state, Step.ACK).state) for entry in owned]
        self._spool.put(acked)
        await self._spool.sync()
        self._complete_later(acked)

    async def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """There is no giving back what this client has taken. Raises ValueError."""
        raise ValueError("an event of a subscription with qos=2 is this client's alone, and cannot be given back")

    async def extend(self, events: Sequence[StoredEvent]) -> None:
        """Nothing to do: what was taken has no timer."""

    def _key(self, event: StoredEvent) -> tuple[str, str, int]:
        return self.topic, self.name or "", event.offset

    def _mine(self) -> list[Incoming]:
        return [entry for entry in self._spool.incoming.values() if entry.key[:2] == (self.topic, self.name)]

    async def _take_all(self) -> None:
        while True:
            if not self._arrived:
                self._has_arrived = anyio.Event()
                await self._has_arrived.wait()
            batch, self._arrived = self._arrived[:TOGETHER], self._arrived[TOGETHER:]
            await self._take([self._spool.incoming.get(self._key(event)) or self._new(event) for event in batch])

    def _new(self, event: StoredEvent) -> Incoming:
        topic, name, offset = self._key(event)
        line = msgspec.json.encode(event).decode()
        return Incoming(topic, name, offset, line, moved(HALF, State.NOTHING, Step.EVENT).state)

    async def _take(self, entries: list[Incoming]) -> None:
        """Have events on the disk, take them from the broker, have that on the disk, and hand them over."""
        if not entries:
            return
        self._spool.put(entry for entry in entries if entry.key not in self._spool.incoming)
        await self._spool.sync()
        steps, failures = await self._say_all("pubrec", entries, Step.REL)
        taken = [structs.replace(entry, state=moved(HALF, entry.state, step).state) for entry, step in steps]
        self._spool.put(taken)
        await self._spool.sync()
        self._hand_over(
            _event(entry)
            for (before, _), entry in zip(steps, taken, strict=True)
            if (before.state, entry.state) == (State.ARRIVED, State.OWNED)
        )
        self._complete_later([entry for entry in taken if entry.state is State.ACKED])
        _raise(failures)

    def _hand_over(self, events: Iterable[StoredEvent]) -> None:
        if some := list(events):
            super().deliver(some)

    def _complete_later(self, entries: list[Incoming]) -> None:
        self._acked += entries
        self._has_acked.set()

    async def _finish_all(self) -> None:
        while True:
            if not self._acked:
                self._has_acked = anyio.Event()
                await self._has_acked.wait()
            batch, self._acked = self._acked[:TOGETHER], self._acked[TOGETHER:]
            steps, failures = await self._say_all("pubcomp", batch, Step.OK_COMP)
            self._spool.put(structs.replace(one, state=moved(HALF, one.state, step).state) for one, step in steps)
            _raise(failures)

    async def _say_all(
        self, verb: str, entries: list[Incoming], answer: Step
    ) -> tuple[list[tuple[Incoming, Step]], list[BrokerError]]:
        """Say a step of many events side by side; returns what each came to, and why others came to nothing."""
        steps: list[tuple[Incoming, Step]] = []
        failures: list[BrokerError] = []
        places = {entry.key: number for number, entry in enumerate(entries)}

        async def say_one(entry: Incoming) -> None:
            try:
                await say(self._ask, f"{verb} {self.topic} @{entry.offset}\n".encode(), self._answer_s)
                steps.append((entry, answer))
            except Refusal as refusal:
                if refusal.code == "stale":
                    steps.append((entry, Step.STALE))
                else:
                    failures.append(refusal)
            except HandshakeFailed as failure:
                failures.append(failure)

        async with anyio.create_task_group() as tasks:
            for entry in entries:
                tasks.start_soon(say_one, entry)
        steps.sort(key=lambda one: places[one[0].key])
        return steps, failures


def _event(entry: Incoming) -> StoredEvent:
    return decode_stored(entry.line.encode())


def _raise(failures: list[BrokerError]) -> None:
    if failures:
        raise failures[0]


def _first(group: BaseExceptionGroup[BrokerError]) -> BrokerError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, BrokerError)  # noqa: S101 — the group was caught as one of these
    return error
