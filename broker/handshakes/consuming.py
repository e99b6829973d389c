"""The client's half of exactly-once consuming: a subscription with ``qos=2``.

An event is written to the client's disk, taken from the broker, and only then handed over; what the application acks is
written down before the broker is told. So an event is handed over once, whatever becomes of the connection or the broker. If
this process dies between handing an event over and its ack, only the application knows what it has done: the event is
handed over again by the next process, with an `attempt` above 1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from broker.client.subscription import Start, Subscription
from broker.errors import BrokerError, HandshakeFailed, Refusal
from broker.events import StoredEvent
from broker.handshakes.spool import Incoming, Spool
from broker.handshakes.steps import say
from broker.handshakes.taking import TOGETHER, Taking
from broker.protocol.handshakes import Step

if TYPE_CHECKING:
    from broker.client.link import Link

__all__ = ["ExactlyOnceSubscription"]


class ExactlyOnceSubscription(Subscription):
    """Hands each event over once; see `Subscription`, whose `ack` this one has, and whose `nack` and `extend` it has not."""

    def __init__(
        self, link: "Link", topic: str, name: str, start: Start, options: str, *, spool: Spool, answer_s: float
    ) -> None:
        super().__init__(link, topic, name, start, f"{options} qos=2")
        self._ask = link.ask
        self._spool = spool
        self._taking = Taking(spool, topic, name)
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
            self._taking.forget()
        super().end(error)

    async def resume(self) -> None:
        """Go on with what a process before this one has left. Raises HandshakeFailed, Refusal."""
        left = self._taking.left()
        self._hand_over(left.owned)
        self._complete_later(left.acked)
        await self._take(left.arrived)

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
        acked = self._taking.acked(events)
        self.stale += len(events) - len(acked)
        await self._spool.sync()
        self._complete_later(acked)

    async def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """There is no giving back what this client has taken. Raises ValueError."""
        raise ValueError("an event of a subscription with qos=2 is this client's alone, and cannot be given back")

    async def extend(self, events: Sequence[StoredEvent]) -> None:
        """Nothing to do: what was taken has no timer."""

    async def _take_all(self) -> None:
        while True:
            if not self._arrived:
                self._has_arrived = anyio.Event()
                await self._has_arrived.wait()
            batch, self._arrived = self._arrived[:TOGETHER], self._arrived[TOGETHER:]
            await self._take(self._taking.arrived(batch))

    async def _take(self, entries: list[Incoming]) -> None:
        """Have events on the disk, take them from the broker, have that on the disk, and hand them over."""
        if not entries:
            return
        await self._spool.sync()
        steps, failures = await self._say_all("pubrec", entries, Step.REL)
        given, acked = self._taking.taken(steps)
        await self._spool.sync()
        self._hand_over(given)
        self._complete_later(acked)
        _raise(failures)

    def _hand_over(self, events: list[StoredEvent]) -> None:
        if events:
            super().deliver(events)

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
            self._taking.finished(steps)
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


def _raise(failures: list[BrokerError]) -> None:
    if failures:
        raise failures[0]


def _first(group: BaseExceptionGroup[BrokerError]) -> BrokerError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, BrokerError)  # noqa: S101 — the group was caught as one of these
    return error
