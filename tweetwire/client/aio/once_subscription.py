"""A subscription of the async client with ``qos=2``. Its tasks take events from the broker and finish acked ones."""

from collections.abc import Sequence

import anyio

from tweetwire.client.aio.handshakes import AsyncHandshakes
from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.aio.subscription import Subscription
from tweetwire.client.exactly_once import OnceConsuming
from tweetwire.client.exactly_once.spool import Incoming
from tweetwire.client.exactly_once.steps import TOGETHER
from tweetwire.protocol.errors import BrokerError
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.requests import Start, SubscribeRequest

__all__ = ["ExactlyOnceSubscription"]


class ExactlyOnceSubscription(Subscription):
    """A `Subscription` that hands each event over once. Its `nack` raises ValueError, and its `extend` does nothing."""

    def __init__(self, link: AsyncLink, request: SubscribeRequest, start: Start, handshakes: AsyncHandshakes) -> None:
        super().__init__(link, request, start)
        assert request.name is not None  # noqa: S101 — the caller has checked this
        self._handshakes = handshakes
        self._consuming = OnceConsuming(handshakes.spool, request.topic, request.name)
        self._acked: list[Incoming] = []
        self._has_arrived = anyio.Event()
        self._has_acked = anyio.Event()
        self._unfinished = 0
        self._has_finished = anyio.Event()
        self._scope = anyio.CancelScope()

    def detach(self) -> None:
        """Note that the connection was lost. The broker redelivers the events that were not taken. Called by the engine."""
        self._is_attached = False
        self._consuming.drop_arrived()

    def end(self, error: BrokerError | None = None) -> None:
        """End the subscription. Called by the engine.

        The spool keeps unfinished events for the next subscription.
        """
        self._scope.cancel()
        self._unfinished = 0
        self._has_finished.set()
        super().end(error)

    def forget(self) -> None:
        """Drop the spool's events. Called by the engine.

        The broker has ended the subscription and its handshakes.
        """
        self._consuming.forget()

    async def prepare(self) -> None:
        """Continue with the events that an earlier process left. Called by the client.

        Raises HandshakeFailed, Refusal.
        """
        left = self._consuming.left()
        self._hand_over(left.owned)
        self._complete_later(left.acked)
        await self._take(left.arrived)

    async def serve(self) -> None:
        """Take arrived events and finish acked ones until the end. A failed handshake ends the subscription."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._take_all)
                    tasks.start_soon(self._finish_all)
        except* BrokerError as group:
            self.end(_first(group))

    async def finish(self) -> None:
        """Wait until the broker has settled the acked events. Called by the client when its block ends."""
        while self._unfinished:
            self._has_finished = anyio.Event()
            await self._has_finished.wait()

    async def ack(self, events: Sequence[StoredEvent]) -> None:
        """Ack events. Returns once the acks are on this client's disk; the broker settles the events later.

        An event that this subscription does not own is counted in `stale`. Raises SpoolUnusable.
        """
        self._link.owner.check()
        acked = self._consuming.ack(events)
        self.stale += len(events) - len(acked)
        # Queue them before the sync, because this task may be cancelled during it. `_finish_all` syncs as well.
        self._complete_later(acked)
        await self._handshakes.spool.sync()

    async def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """Raise ValueError: an event that this client has taken from the broker cannot be given back."""
        raise ValueError("an event of a subscription with qos=2 cannot be given back; ack it")

    async def extend(self, events: Sequence[StoredEvent]) -> None:
        """Do nothing: a taken event has no ack timer."""

    async def _take_all(self) -> None:
        while True:
            entries = self._consuming.next_arrived()
            if not entries:
                self._has_arrived = anyio.Event()
                await self._has_arrived.wait()
            await self._take(entries)

    async def _take(self, entries: list[Incoming]) -> None:
        if not entries:
            return
        taken = await self._handshakes.run(self._consuming.take(entries))
        self._hand_over(taken.given)
        self._complete_later(taken.acked)
        if taken.failures:
            raise taken.failures[0][1]

    def _arrive(self, events: list[StoredEvent]) -> None:
        """Queue arrived events. They are handed over after they have been taken."""
        self._consuming.arrive(events, self._request.prefetch)
        self._has_arrived.set()

    def _hand_over(self, events: list[StoredEvent]) -> None:
        if events:
            self._keep(events)

    def _complete_later(self, entries: list[Incoming]) -> None:
        self._acked += entries
        self._unfinished += len(entries)
        self._has_acked.set()

    async def _finish_all(self) -> None:
        while True:
            if not self._acked:
                self._has_acked = anyio.Event()
                await self._has_acked.wait()
            batch, self._acked = self._acked[:TOGETHER], self._acked[TOGETHER:]
            failures = await self._handshakes.run(self._consuming.finish(batch))
            self._unfinished -= len(batch)
            self._has_finished.set()
            if failures:
                raise failures[0][1]


def _first(group: BaseExceptionGroup[BrokerError]) -> BrokerError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, BrokerError)  # noqa: S101 — only these errors are caught
    return error
