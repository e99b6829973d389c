"""Watch the running stack from outside (topics, subscriptions, documents, reports), and collect evidence."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from msgspec import Struct
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from demo.evidence import Evidence, SubscriberAccount
from demo.settings import DemoSettings
from demo.stack import SUBSCRIPTION, TOPICS
from demo.subscriber_log import SubscriberLog
from demo.supervisor import Supervisor
from demo.tally import CHANGES, Tally
from tweetwire import Client
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.mongodb import reason_of

__all__ = ["Observer", "Rate"]


_LOOK_EVERY_S = 1.0
_LOOK_WITHIN_S = 5.0
_RATE_LOOKS = 6
"""A rate is computed over this number of looks: the ingester writes batches, so the rates of single seconds would jump."""


class Rate:
    """The rate of a topic's events over the last looks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=_RATE_LOOKS)

    def note(self, at_s: float, next_offset: int) -> None:
        """Record the topic's next offset at a time."""
        self._looks.append((at_s, next_offset))

    @property
    def next(self) -> int:
        return self._looks[-1][1] if self._looks else 0

    @property
    def per_second(self) -> float:
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0


class SubscriptionStanding(Struct, frozen=True):
    """The state of the demo's subscription: the topic's next offset, events pending or in flight, and dead letters."""

    next: int
    unsettled: int
    dead: int = 0


class Observer:
    """One run, seen from outside. `opening` is the broker's ``stats`` before the subscriber started."""

    def __init__(
        self, settings: DemoSettings, supervisor: Supervisor, client: Client, opening: Mapping[str, Any]
    ) -> None:
        self.tally = Tally(round(settings.window * 1000))
        self.subscriber = SubscriberLog(supervisor["subscriber"].log_path)
        self.rates: dict[str, Rate] = {}
        self._stored: dict[str, dict[str, int | None]] = {topic: {} for topic in CHANGES}
        self._stats = opening
        self._opening = {topic: self._standing(topic) for topic in CHANGES}
        self._statistics_before = self._next("tweets_stats")
        self._settings = settings
        self._supervisor = supervisor
        self._client = client
        self._has_looked = anyio.Event()

    async def run(self, show: Callable[["Observer"], None]) -> None:
        """Read and show the figures until cancelled. While the broker is unreachable, the last figures stay."""
        while True:
            with anyio.move_on_after(_LOOK_WITHIN_S):
                await self._look()
            show(self)
            self._has_looked.set()
            self._has_looked = anyio.Event()
            await anyio.sleep(_LOOK_EVERY_S)

    async def look_again(self) -> None:
        """Wait until the figures have been read once from beginning to end after this call."""
        await self._has_looked.wait()
        await self._has_looked.wait()

    async def look_into_mongodb(self, url: str) -> None:
        """Read the documents that the topics should have. Raises StartError if MongoDB does not answer."""
        try:
            async with AsyncMongoClient[dict[str, Any]](url) as mongo:
                for topic in CHANGES:
                    found = mongo[self._settings.database][topic].find({}, {"tweets_seen": 1}).batch_size(10_000)
                    self._stored[topic] = {str(of["_id"]): of.get("tweets_seen") async for of in found}
        except PyMongoError as error:
            raise StartError(
                f"MongoDB does not answer, so the closing check cannot be made ({reason_of(error)})"
            ) from error

    @property
    def has_new_statistics(self) -> bool:
        """Whether Spark has published statistics in this run."""
        return self._next("tweets_stats") > self._statistics_before

    def unsettled(self, topic: str) -> int:
        """Return the number of events of `topic` that the demo's subscriber has not acked yet."""
        return self._standing(topic).unsettled

    def evidence(self) -> Evidence:
        """Return the evidence collected so far."""
        return Evidence(
            stored=self._stored,
            brought=self.tally.brought,
            seen=self.tally.seen,
            counted=self.tally.counted,
            windows=self.tally.windows if self._settings.spark else {},
            accounts={topic: self._account(topic) for topic in CHANGES},
            deaths={name: child.deaths for name, child in self._supervisor.children.items()},
        )

    async def _look(self) -> None:
        self.subscriber.read()
        await self.tally.read(self._client)
        self._stats = await self._client.stats()
        self._note_rates()

    def _account(self, topic: str) -> SubscriberAccount:
        opening, closing = self._opening[topic], self._standing(topic)
        return SubscriberAccount(
            owed=opening.unsettled + closing.next - opening.next,
            acked=self.subscriber.total(topic, "acked"),
            lost=self.subscriber.total(topic, "lost"),
            doubled=self.subscriber.total(topic, "doubled"),
            unsettled=closing.unsettled,
            dead=closing.dead - opening.dead,
            is_whole=not self._supervisor["subscriber"].restarts,
        )

    def _standing(self, topic: str) -> SubscriptionStanding:
        of_topic = self._stats["topics"].get(topic, {})
        # Before the subscriber subscribes, all events of the topic are pending, because it begins with the earliest event.
        nothing = {"pending": of_topic.get("next", 0), "in_flight": 0, "dead": 0}
        of_subscription = of_topic.get("subscriptions", {}).get(SUBSCRIPTION, nothing)
        unsettled = of_subscription["pending"] + of_subscription["in_flight"]
        return SubscriptionStanding(of_topic.get("next", 0), unsettled, of_subscription["dead"])

    def _next(self, topic: str) -> int:
        return int(self._stats["topics"].get(topic, {}).get("next", 0))

    def _note_rates(self) -> None:
        now = time.monotonic()
        for topic in TOPICS:
            self.rates.setdefault(topic, Rate()).note(now, self._next(topic))
