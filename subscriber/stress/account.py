"""The record of a run: the ledgers of its subscriptions, latencies, order, and the events of each publisher."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from subscriber.stress.latency import LatencyHistogram
from subscriber.stress.ledger import Ledger
from subscriber.stress.load import due_us, number_of
from subscriber.stress.offsets import OffsetSet
from tweetwire import StoredEvent

__all__ = ["Second", "StressAccount"]


class Second:
    """The events that arrived in a period, which usually is a second."""

    def __init__(self) -> None:
        self.received = 0
        self.latency = LatencyHistogram()


class StressAccount:
    """The record that every connection writes to.

    `latency` is measured from the time at which an event was due, if the event states it, else from the broker's timestamp.
    `twice` counts events of the run's publishers that a topic has at two offsets.
    """

    def __init__(self) -> None:
        self.ledgers: list[Ledger] = []
        self.latency = LatencyHistogram()
        # {second since 1970: the events that arrived in it}
        self.seconds: dict[int, Second] = {}
        self.events = 0
        self._lately = Second()
        self.twice = 0
        # {(topic, subscription, producer): the numbers of the events that arrived}
        self._numbers: dict[tuple[str, str, str], OffsetSet] = {}

    def ledger_of(self, topic: str, subscription: str) -> Ledger:
        """Return the ledger of a subscription, making an empty one on first use."""
        for ledger in self.ledgers:
            if (ledger.topic, ledger.subscription) == (topic, subscription):
                return ledger
        self.ledgers.append(Ledger(topic, subscription))
        return self.ledgers[-1]

    def take_lately(self) -> Second:
        """Return the events that arrived since the last call."""
        lately, self._lately = self._lately, Second()
        return lately

    def note_arrival(self, ledger: Ledger, batch: Sequence[StoredEvent]) -> None:
        """Record a batch that has just arrived."""
        now_ms = time.time() * 1000
        second = self.seconds.setdefault(int(now_ms / 1000), Second())
        self.events += len(batch)
        for where in (second, self._lately):
            where.received += len(batch)
        self._note_numbers(ledger, batch)
        for at_ms, events in Counter([_begin_ms(event) for event in batch]).items():
            for latency in (self.latency, second.latency, self._lately.latency):
                latency.record(now_ms - at_ms, events)
        ledger.receive([event.offset for event in batch])

    def not_arrived(self, topic: str, confirmed: Mapping[str, int]) -> int:
        """Return how many confirmed events have not arrived, for the subscription that lacks the most.

        Args:
            topic: the topic of the events.
            confirmed: the number of confirmed events by producer. The n events of a producer have the numbers 0 to n - 1.
        """
        missing = [0]
        for ledger in self.ledgers:
            if ledger.topic == topic:
                key = (topic, ledger.subscription)
                missing.append(
                    sum(count - len(self._numbers.get((*key, producer), ())) for producer, count in confirmed.items())
                )
        return max(missing)

    def _note_numbers(self, ledger: Ledger, batch: Sequence[StoredEvent]) -> None:
        by_producer: dict[str, list[int]] = {}
        for event in batch:
            number = number_of(event)
            if number is not None and event.offset not in ledger.received:
                by_producer.setdefault(number[0], []).append(number[1])
        for producer, numbers in by_producer.items():
            key = (ledger.topic, ledger.subscription, producer)
            self.twice += len(self._numbers.setdefault(key, OffsetSet()).add_all(numbers))


def _begin_ms(event: StoredEvent) -> float:
    due = due_us(event)
    return event.timestamp if due is None else due / 1000
