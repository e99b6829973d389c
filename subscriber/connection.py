"""One connection of a run: subscribes, takes, answers, and vanishes where the lot says so, to come again."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskStatus

from broker import Client, Refusal, StoredEvent, Subscription
from broker.errors import StartError
from subscriber.account import Account
from subscriber.confirmation import Confirmation
from subscriber.faults import Faults
from subscriber.ledger import Ledger
from subscriber.order import OrderCheck
from subscriber.settings import SubscriberSettings

__all__ = ["Connection", "Phases"]


class Phases:
    """When all connections may begin to answer, when they end, how many then have had their acks confirmed, and when they
    may be closed."""

    def __init__(self, end: anyio.Event) -> None:
        self.may_take = anyio.Event()
        self.end = end
        self.confirmed = 0
        self.may_close = anyio.Event()


@dataclass(eq=False)
class Reader:
    """A connection's subscription to one topic, the account it writes into, and who learns what was confirmed."""

    client: Client
    subscription: Subscription
    ledger: Ledger
    confirmation: Confirmation
    order: OrderCheck = field(default_factory=OrderCheck)


class Connection:
    """Number `number` of a run."""

    def __init__(self, number: int, settings: SubscriberSettings, account: Account, phases: Phases) -> None:
        self.client: Client | None = None
        self.readers: list[Reader] = []
        self.disordered = 0
        self.faults = Faults(settings.nack_share, settings.stall, settings.vanish, settings.seed + number)
        self._number = number
        self._settings = settings
        self._account = account
        self._phases = phases

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        """Connect and go on until the run may be closed; started once it is subscribed.

        Raises StartError where the broker refuses a subscription.
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

    async def _subscribe(self, topic: str, client: Client, confirmation: Confirmation) -> Reader:
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
        return Reader(client, subscription, ledger, confirmation)

    async def _take_all(self, confirmation: Confirmation) -> None:
        """Take until the run ends or the connection is to vanish; what was answered is confirmed where there is time."""
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

    async def _take(self, reader: Reader, has_vanished: anyio.Event) -> None:
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

    async def _settle(self, reader: Reader, batch: Sequence[StoredEvent]) -> None:
        if not self._settings.delay:
            await self._ack(reader, batch)
            return
        for event in batch:
            with anyio.move_on_after(self._settings.delay):
                await self._phases.end.wait()
            if self._phases.end.is_set():
                return
            await self._ack(reader, [event])

    async def _ack(self, reader: Reader, events: Sequence[StoredEvent]) -> None:
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
"""How long the last confirmations may take once the end is called."""


async def _cancel_after(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
