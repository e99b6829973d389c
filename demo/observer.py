"""Looks at the running stack from outside: topics, subscriptions, documents, reports. What it saw becomes evidence."""

import time
from collections.abc import Mapping
from typing import Any

import anyio
from msgspec import Struct
from pymongo import AsyncMongoClient

from broker import Client
from demo.evidence import Account, Evidence
from demo.settings import DemoSettings
from demo.stack import SUBSCRIPTION, TOPICS
from demo.subscriber_log import SubscriberLog
from demo.supervisor import Supervisor
from demo.tally import CHANGES, Tally

__all__ = ["Observer", "Rate"]


class Rate(Struct, frozen=True):
    """A topic as seen at two looks: its next offset, when that was, and events a second in between."""

    next: int
    at: float
    per_second: float = 0.0


class Standing(Struct, frozen=True):
    """How the demo's subscription of a topic stands: the topic's next offset, and what is pending or in flight."""

    next: int
    unsettled: int


class Observer:
    """One run as seen from outside. `opening` is the broker's ``stats`` from before the subscriber started."""

    def __init__(
        self, settings: DemoSettings, supervisor: Supervisor, client: Client, opening: Mapping[str, Any]
    ) -> None:
        self.tally = Tally(round(settings.window * 1000))
        self.subscriber = SubscriberLog(supervisor["subscriber"].log_path)
        self.rates: dict[str, Rate] = {}
        self._stored: dict[str, frozenset[str]] = {}
        self._stats = opening
        self._opening = {topic: self._standing(topic) for topic in CHANGES}
        self._statistics_before = self._next("tweets_stats")
        self._settings = settings
        self._supervisor = supervisor
        self._client = client

    async def look(self, within_s: float = 5.0) -> bool:
        """Look once at everything but MongoDB. Returns whether all was seen: where the broker is away, the old stays."""
        self.subscriber.read()
        with anyio.move_on_after(within_s) as patience:
            await self.tally.read(self._client)
            self._stats = await self._client.stats()
            self._note_rates()
        return not patience.cancelled_caught

    async def look_into_mongodb(self, url: str) -> None:
        """Read the ids of all documents that should be in a topic."""
        async with AsyncMongoClient[dict[str, Any]](url) as mongo:
            for topic in CHANGES:
                ids = mongo[self._settings.database][topic].find({}, {"_id": 1}).batch_size(10_000)
                self._stored[topic] = frozenset([str(document["_id"]) async for document in ids])

    @property
    def has_new_statistics(self) -> bool:
        """Whether Spark has published in this run."""
        return self._next("tweets_stats") > self._statistics_before

    def unsettled(self, topic: str) -> int:
        """Return how many events of `topic` the demo's subscriber has yet to ack."""
        return self._standing(topic).unsettled

    def evidence(self) -> Evidence:
        """Put together what was seen."""
        return Evidence(
            stored=self._stored,
            brought=self.tally.brought,
            counted=self.tally.counted,
            windows=self.tally.windows if self._settings.spark else {},
            accounts={topic: self._account(topic) for topic in CHANGES},
            deaths={name: child.deaths for name, child in self._supervisor.children.items()},
        )

    def _account(self, topic: str) -> Account:
        opening, closing = self._opening[topic], self._standing(topic)
        return Account(
            owed=opening.unsettled + closing.next - opening.next,
            acked=self.subscriber.total(topic, "acked"),
            lost=self.subscriber.total(topic, "lost"),
            doubled=self.subscriber.total(topic, "doubled"),
            unsettled=closing.unsettled,
            is_whole=not self._supervisor["subscriber"].restarts,
        )

    def _standing(self, topic: str) -> Standing:
        of_topic = self._stats["topics"].get(topic, {})
        # Without a subscription the whole topic is still to be read: the subscriber begins with the earliest event.
        nothing = {"pending": of_topic.get("next", 0), "in_flight": 0}
        of_subscription = of_topic.get("subscriptions", {}).get(SUBSCRIPTION, nothing)
        return Standing(of_topic.get("next", 0), of_subscription["pending"] + of_subscription["in_flight"])

    def _next(self, topic: str) -> int:
        return int(self._stats["topics"].get(topic, {}).get("next", 0))

    def _note_rates(self) -> None:
        now = time.monotonic()
        for topic in TOPICS:
            before, offset = self.rates.get(topic), self._next(topic)
            per_second = (offset - before.next) / (now - before.at) if before else 0.0
            self.rates[topic] = Rate(offset, now, per_second)
