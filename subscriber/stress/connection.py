"""One connection of a run: subscribes, takes events, answers them, and drops and reconnects at random if so configured."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskStatus

from subscriber.stress.account import StressAccount
from subscriber.stress.confirmation import Confirmation
from subscriber.stress.faults import Faults
from subscriber.stress.ledger import Ledger
from subscriber.stress.order import OrderCheck
from subscriber.stress.settings import SubscriberSettings
from tweetwire import Client, Refusal, StoredEvent, Subscription
from tweetwire.protocol.errors import StartError

__all__ = ["Phases", "StressConnection"]


class Phases:
    """The phases of a run, which all connections share.

    `may_take` is set when connections may begin to take events, `end` when they must stop, and `may_close` when they may
    close. `confirmed` counts the connections whose acks were confirmed after the end.
    """

    def __init__(self, end: anyio.Event) -> None:
        self.may_take = anyio.Event()
        self.end = end
        self.confirmed = 0
        self.may_close = anyio.Event()


@dataclass(eq=False)
class LineReader:
    """A connection's subscription to one topic, with its ledger and the confirmation of its acks."""

    client: Client
    subscription: Subscription
    ledger: Ledger
    confirmation: Confirmation
    order: OrderCheck = field(default_factory=OrderCheck)


class StressConnection:
    """One connection of a run, with its number."""

    def __init__(self, number: int, settings: SubscriberSettings, account: StressAccount, phases: Phases) -> None:
        self.client: Client | None = None
        self.readers: list[LineReader] = []
        self.disordered = 0
        self.faults = Faults(settings.nack_share, settings.stall, settings.vanish, settings.seed + number)
        self._number = number
        self._settings = settings
        self._account = account
        self._phases = phases

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        """Connect and take events until the connection may close. The task counts as started once it is subscribed.

        Raises:
            StartError: the broker refuses a subscription.
        """
        is_started, login = False, self._settings.login()
        while not self._phases.may_close.is_set():
            async with login.client(f"subscriber-{self._number}") as client:
                self.client, confirmation = client, Confirmation(client)
                self.readers = [await self._subscribe(topic, client, confirmation) for topic in self._settings.topic]
                if not is_started:
                    is_started = True
                    task_status.started()
                await self._phases.may_take.wait()
                await self._take_all(confirmation)
                self.disordered += sum(reader.order.disordered for reader in self.readers)
                if self._phases.end.is_set():
                    self._phases.confirmed += 1
                    await self._phases.may_close.wait()
                else:
                    client.abandon()

    async def _subscribe(self, topic: str, client: Client, confirmation: Confirmation) -> LineReader:
        settings = self._settings
        try:
            subscription = await client.subscribe(
                topic,
                as_=settings.as_,
                prefetch=settings.prefetch,
                from_=settings.from_,
                create=True,
                timeout_s=settings.timeout,
            )
        except Refusal as refusal:
            reason = settings.login().reason(refusal)
            raise StartError(f"the broker refuses the subscription to {topic}: {reason}") from refusal
        ledger = self._account.ledger_of(topic, subscription.known_as)
        return LineReader(client, subscription, ledger, confirmation)

    async def _take_all(self, confirmation: Confirmation) -> None:
        """Take events until the run ends or the connection is dropped on purpose. Then confirm the acks if there is time."""
        async with anyio.create_task_group() as tasks:
            has_vanished = anyio.Event()
            for reader in self.readers:
                tasks.start_soon(self._take, reader, has_vanished)
            tasks.start_soon(confirmation.run)
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(_cancel_after, self._phases.end, waiting.cancel_scope)
                waiting.start_soon(_cancel_after, has_vanished, waiting.cancel_scope)
            tasks.cancel_scope.cancel()
        if self._phases.end.is_set():
            with anyio.move_on_after(_CONFIRM_WITHIN_S):
                await confirmation.confirm()

    async def _take(self, reader: LineReader, has_vanished: anyio.Event) -> None:
        async for batch in reader.subscription:
            reader.order.note(batch, reader.client.connects)
            self._account.note_arrival(reader.ledger, batch)
            lot = self.faults.draw(batch)
            if lot.is_vanishing:
                has_vanished.set()
                return
            for event in lot.nacked:
                await reader.subscription.nack(event, "on purpose", code="fault")
            await self._settle(reader, lot.acked)
            if self._phases.end.is_set():
                return

    async def _settle(self, reader: LineReader, batch: Sequence[StoredEvent]) -> None:
        if not self._settings.delay:
            await self._ack(reader, batch)
            return
        for event in batch:
            with anyio.move_on_after(self._settings.delay):
                await self._phases.end.wait()
            if self._phases.end.is_set():
                return
            await self._ack(reader, [event])

    async def _ack(self, reader: LineReader, events: Sequence[StoredEvent]) -> None:
        if not events:
            return
        offsets = [event.offset for event in events]
        reader.ledger.ack(offsets)
        reader.confirmation.note(reader.subscription, reader.ledger, offsets)
        await reader.subscription.ack(events)
        count = self._settings.count
        if count is not None and sum(len(ledger.acked) for ledger in self._account.ledgers) >= count:
            self._phases.end.set()


_CONFIRM_WITHIN_S = 5.0
"""The time for the last confirmations after the end of the run, in seconds."""


async def _cancel_after(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
