"""One run: connections that take and answer events, optional publishers, and the verdict at the end.

A run has these steps:

1. Every connection subscribes.
2. The broker's balance is read before the first ack, so that it includes every event that the run acks.
3. Events are published and taken until the run ends.
4. The balance is read again while the connections are open, since an unnamed subscription ends with its connection.
"""

import time
from collections.abc import Mapping, Sequence

import anyio

from subscriber.stress.account import Second, StressAccount
from subscriber.stress.balance import balance_of
from subscriber.stress.connection import Phases, StressConnection
from subscriber.stress.latency import LatencyHistogram
from subscriber.stress.ledger import Balance, Ledger
from subscriber.stress.publishers import Publishers
from subscriber.stress.publishing import Offered, Sending, merged
from subscriber.stress.report import FaultReport, Latency, LoadReport, SecondReport, Show, StressReport, TopicReport
from subscriber.stress.settings import SubscriberSettings
from tweetwire import Client, Refusal
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import ready

__all__ = ["Stress"]

_SECOND_S = 1.0
_POLL_S = 0.1
_CONFIRM_WITHIN_S = 6.0
_BALANCE_WITHIN_S = 10.0


class Stress:
    """One run: its account, its connections and its end."""

    def __init__(self, settings: SubscriberSettings, end: anyio.Event) -> None:
        self.settings = settings
        self.account = StressAccount()
        self._phases = Phases(end)
        self._connections = [
            StressConnection(number, settings, self.account, self._phases) for number in range(settings.connections)
        ]
        self._began_at = time.monotonic()
        self._load: LoadReport | None = None
        self._sendings: dict[int, Sending] = {}

    async def run(self, show: Show) -> StressReport:
        """Run until a signal, the count, the time or the last event ends it. Return the final report, after showing it.

        Raises:
            StartError: the broker refuses a subscription, or does not send the final balance.
        """
        settings, phases, login = self.settings, self._phases, self.settings.login()
        async with (
            login.client("stress") as client,
            anyio.create_task_group() as tasks,
        ):
            for connection in self._connections:
                await tasks.start(connection.serve)
            opening = await self._balances(client)
            ready("subscriber", settings.broker)
            self._began_at = time.monotonic()
            phases.may_take.set()
            async with anyio.create_task_group() as reporting:
                reporting.start_soon(self._report_seconds, show)
                await self._until_the_end(client)
                reporting.cancel_scope.cancel()
            seconds = time.monotonic() - self._began_at
            with anyio.move_on_after(_CONFIRM_WITHIN_S):
                while phases.confirmed < len(self._connections):
                    await anyio.sleep(_POLL_S / 10)
            closing = await self._balances(client)
            phases.may_close.set()
        report = self._final_report(seconds, opening, closing)
        show(report)
        return report

    async def _until_the_end(self, client: Client) -> None:
        """Wait for `end`, and set it when the time is over or all published events have arrived."""
        settings, end = self.settings, self._phases.end
        if settings.publish_rate is None:
            with anyio.move_on_after(settings.seconds):
                await end.wait()
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._publish, client, settings.publish_rate, end)
                await end.wait()
                tasks.cancel_scope.cancel()
        end.set()

    async def _publish(self, client: Client, rate: float, end: anyio.Event) -> None:
        publishers = Publishers(self.settings, rate)
        async with publishers.start():
            began_at, offered = await publishers.run()
        self._note_offered(rate, offered)
        self._sendings = {began_at + sending.second: sending for sending in merged(offered)}
        with anyio.move_on_after(self.settings.drain):
            while not await self._is_settled(client):
                await anyio.sleep(_POLL_S)
        end.set()

    def _note_offered(self, rate: float, all_offered: Sequence[Offered]) -> None:
        latency = LatencyHistogram()
        for offered in all_offered:
            latency.add_counts(offered.latency)
        confirmed = {
            topic: {offered.name: offered.confirmed.get(topic, 0) for offered in all_offered}
            for topic in self.settings.topic
        }
        self._load = LoadReport(
            rate=rate,
            due=sum(offered.due for offered in all_offered),
            sent=sum(offered.sent for offered in all_offered),
            confirmed=sum(sum(of.values()) for of in confirmed.values()),
            seconds=max(offered.seconds for offered in all_offered),
            late_ms=max(offered.late_ms for offered in all_offered),
            confirm_ms=Latency.of(latency),
            by_producer=confirmed,
        )

    async def _is_settled(self, client: Client) -> bool:
        balances = await self._balances(client)
        return not any(balance.unsettled for balance in balances.values())

    async def _balances(self, client: Client) -> dict[Ledger, Balance]:
        try:
            with anyio.fail_after(_BALANCE_WITHIN_S):
                stats = await client.stats()
        except TimeoutError as error:
            sentence = f"the broker at {self.settings.broker} does not answer, so losses cannot be determined"
            raise StartError(sentence) from error
        except Refusal as refusal:
            reason = self.settings.login().reason(refusal)
            raise StartError(f"the broker at {self.settings.broker} refuses: {reason}") from refusal
        # After a reconnect, an unnamed subscription is a new one, with a new name.
        readers = [reader for connection in self._connections for reader in connection.readers]
        names = {reader.ledger: reader.subscription.known_as for reader in readers}
        return {ledger: balance_of(stats, ledger.topic, name) for ledger, name in names.items()}

    async def _report_seconds(self, show: Show) -> None:
        while True:
            began_at = time.monotonic()
            await anyio.sleep(_SECOND_S)
            seconds = time.monotonic() - began_at
            second = self.account.take_lately()
            show(
                StressReport(
                    report="second",
                    seconds=round(time.monotonic() - self._began_at, 3),
                    events=self.account.events,
                    per_second=round(second.received / seconds, 1),
                    latency_ms=Latency.of(second.latency),
                    topics=[TopicReport.of(ledger) for ledger in self.account.ledgers],
                    disordered=self._disordered(),
                    twice=self.account.twice,
                )
            )

    def _disordered(self) -> int:
        open_ = sum(reader.order.disordered for connection in self._connections for reader in connection.readers)
        return sum(connection.disordered for connection in self._connections) or open_

    def _final_report(
        self, seconds: float, opening: Mapping[Ledger, Balance], closing: Mapping[Ledger, Balance]
    ) -> StressReport:
        ledgers = self.account.ledgers
        topics = [TopicReport.of(ledger, ledger.judge(opening[ledger], closing[ledger])) for ledger in ledgers]
        return StressReport(
            report="final",
            seconds=round(seconds, 3),
            events=self.account.events,
            per_second=round(self.account.events / seconds, 1),
            latency_ms=Latency.of(self.account.latency),
            topics=topics,
            disordered=sum(connection.disordered for connection in self._connections),
            twice=self.account.twice,
            not_arrived=self._not_arrived(topics),
            load=self._load,
            faults=FaultReport.of([connection.faults for connection in self._connections]),
            series=self._joined_series(),
        )

    def _not_arrived(self, topics: Sequence[TopicReport]) -> int | None:
        """Return how many confirmed events did not arrive; None if pending or dead events make the number unknown."""
        if self._load is None or any(topic.pending or topic.dead for topic in topics):
            return None
        return sum(self.account.not_arrived(topic, of) for topic, of in self._load.by_producer.items())

    def _joined_series(self) -> list[SecondReport]:
        received, sent = self.account.seconds, self._sendings
        if not received and not sent:
            return []
        seconds = range(min([*received, *sent]), max([*received, *sent]) + 1)
        return [
            SecondReport.of(place, received.get(second, Second()), sent.get(second, Sending(place)))
            for place, second in enumerate(seconds)
        ]
