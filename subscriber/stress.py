"""Takes events as fast as the broker gives them, acks them, and keeps the account.

A run has four parts, in this order: every connection subscribes; the broker's balance is noted before the first ack, so
that everything acked was owed; events are taken until the end is called; the broker is asked for its balance once more,
while the connections still stand, since a subscription without a name ends with its connection.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import anyio

from broker import Client, Refusal, StoredEvent
from broker.client import Subscription
from broker.errors import StartError
from broker.program import ready
from subscriber.balance import balance_of
from subscriber.confirmation import Confirmation
from subscriber.latency import LatencyHistogram
from subscriber.ledger import Balance, Ledger
from subscriber.report import Latency, Report, Show, TopicReport
from subscriber.settings import SubscriberSettings

__all__ = ["Stress"]

_SECOND_S = 1.0
_CONFIRM_WITHIN_S = 5.0
"""How long the last confirmations may take once the end is called."""
_BALANCE_WITHIN_S = 10.0


@dataclass(eq=False)
class Reader:
    """A connection's subscription to one topic, the account it writes into, and who learns what was confirmed."""

    subscription: Subscription
    ledger: Ledger
    confirmation: Confirmation


class Stress:
    """One run: its accounts by topic and subscription, its latencies, and when it ends."""

    def __init__(self, settings: SubscriberSettings, end: anyio.Event) -> None:
        self.settings = settings
        self.ledgers: list[Ledger] = []
        self.latency = LatencyHistogram()
        self._latency_of_second = LatencyHistogram()
        self._end = end
        self._began_at = time.monotonic()

    async def run(self, show: Show) -> Report:
        """Run until the end is called, by a signal, the count or the time; returns the final report, shown before.

        Raises StartError where the broker refuses a subscription, or cannot say at the end how things stand.
        """
        async with AsyncExitStack() as stack:
            names = [f"subscriber-{number}" for number in range(self.settings.connections)]
            clients = [await stack.enter_async_context(Client(self.settings.broker, name=name)) for name in names]
            readers = [reader for client in clients for reader in await self._subscribe(client)]
            opening = await self._balances(clients[0], readers)
            ready("subscriber", self.settings.broker)
            self._began_at = time.monotonic()
            await self._take_all(readers, show)
            seconds = time.monotonic() - self._began_at
            closing = await self._balances(clients[0], readers)
        report = self._final_report(seconds, opening, closing)
        show(report)
        return report

    async def _subscribe(self, client: Client) -> list[Reader]:
        confirmation = Confirmation(client)
        return [await self._subscribe_to(topic, client, confirmation) for topic in self.settings.topic]

    async def _subscribe_to(self, topic: str, client: Client, confirmation: Confirmation) -> Reader:
        settings = self.settings
        try:
            subscription = await client.subscribe(
                topic, as_=settings.as_, prefetch=settings.prefetch, from_=settings.from_, create=True
            )
        except Refusal as refusal:
            raise StartError(f"the broker refuses the subscription to {topic}: {refusal}") from refusal
        return Reader(subscription, self._ledger_of(topic, subscription.known_as), confirmation)

    def _ledger_of(self, topic: str, name: str) -> Ledger:
        for ledger in self.ledgers:
            if (ledger.topic, ledger.subscription) == (topic, name):
                return ledger
        self.ledgers.append(Ledger(topic, name))
        return self.ledgers[-1]

    async def _balances(self, client: Client, readers: Sequence[Reader]) -> dict[Ledger, Balance]:
        try:
            with anyio.fail_after(_BALANCE_WITHIN_S):
                stats = await client.stats()
        except TimeoutError as error:
            sentence = f"the broker at {self.settings.broker} does not answer, so nothing can be said about loss"
            raise StartError(sentence) from error
        # A subscription without a name has another one after its connection was lost and made again.
        names = {reader.ledger: reader.subscription.known_as for reader in readers}
        return {ledger: balance_of(stats, ledger.topic, name) for ledger, name in names.items()}

    async def _take_all(self, readers: Sequence[Reader], show: Show) -> None:
        confirmations = {reader.confirmation for reader in readers}
        async with anyio.create_task_group() as tasks:
            for reader in readers:
                tasks.start_soon(self._take, reader)
            for confirmation in confirmations:
                tasks.start_soon(confirmation.run)
            tasks.start_soon(self._report_seconds, show)
            with anyio.move_on_after(self.settings.seconds):
                await self._end.wait()
            self._end.set()
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(_CONFIRM_WITHIN_S):
            for confirmation in confirmations:
                await confirmation.confirm()

    async def _take(self, reader: Reader) -> None:
        async for batch in reader.subscription:
            self._note_arrival(reader.ledger, batch)
            await self._settle(reader, batch)
            if self._end.is_set():
                return

    def _note_arrival(self, ledger: Ledger, batch: Sequence[StoredEvent]) -> None:
        now_ms = time.time() * 1000
        for timestamp, events in Counter([event.timestamp for event in batch]).items():
            self.latency.record(now_ms - timestamp, events)
            self._latency_of_second.record(now_ms - timestamp, events)
        ledger.receive([event.offset for event in batch])

    async def _settle(self, reader: Reader, batch: Sequence[StoredEvent]) -> None:
        if not self.settings.delay:
            await self._ack(reader, batch)
            return
        for event in batch:
            if await self._is_ended_within(self.settings.delay):
                return
            await self._ack(reader, [event])

    async def _ack(self, reader: Reader, events: Sequence[StoredEvent]) -> None:
        offsets = [event.offset for event in events]
        reader.ledger.ack(offsets)
        reader.confirmation.note(reader.subscription, reader.ledger, offsets)
        await reader.subscription.ack(events)
        count = self.settings.count
        if count is not None and sum(len(ledger.acked) for ledger in self.ledgers) >= count:
            self._end.set()

    async def _is_ended_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._end.wait()
        return self._end.is_set()

    async def _report_seconds(self, show: Show) -> None:
        while True:
            began_at = time.monotonic()
            await anyio.sleep(_SECOND_S)
            seconds = time.monotonic() - began_at
            histogram, self._latency_of_second = self._latency_of_second, LatencyHistogram()
            show(
                Report(
                    report="second",
                    seconds=round(time.monotonic() - self._began_at, 3),
                    events=self.latency.count,
                    per_second=round(histogram.count / seconds, 1),
                    latency_ms=Latency.of(histogram),
                    topics=[TopicReport.of(ledger) for ledger in self.ledgers],
                )
            )

    def _final_report(
        self, seconds: float, opening: Mapping[Ledger, Balance], closing: Mapping[Ledger, Balance]
    ) -> Report:
        return Report(
            report="final",
            seconds=round(seconds, 3),
            events=self.latency.count,
            per_second=round(self.latency.count / seconds, 1),
            latency_ms=Latency.of(self.latency),
            topics=[TopicReport.of(ledger, ledger.judge(opening[ledger], closing[ledger])) for ledger in self.ledgers],
        )
