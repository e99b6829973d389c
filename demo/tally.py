"""Reads along with the topics: which documents were brought, which tweets fall in which window, which windows came."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from broker import Client, Refusal, StoredEvent
from demo.evidence import Change, Window, window_start
from subscriber.latency import LatencyHistogram

__all__ = ["CHANGES", "STATISTICS", "Tally"]

CHANGES = ("tweets", "users")
STATISTICS = ("tweets_stats", "users_stats")
_PAGE_EVENTS = 5000


class UserDocument(Struct):
    """The part of a user that counts here; a tweet has nothing of it."""

    tweets_seen: int | None = None


class ChangeMessage(Struct):
    """The part of a change stream's event that counts here."""

    op: str
    at: int | None = None
    document: UserDocument | None = None


class Bounds(Struct):
    """A window's bounds, ISO 8601."""

    start: str
    end: str


class StatisticsMessage(Struct):
    """The part of a statistic that counts here; `users_stats` tells its tweets as a mean over its users."""

    window: Bounds
    is_final: bool
    tweets: int | None = None
    active_users: int | None = None
    tweets_per_user: float | None = None
    late: int = 0
    per_second: float | None = None
    hashtags: list[dict[str, str | int]] = []


class Tally:
    """What the topics have told so far, from their first event on; `read` goes on where it ended.

    `lag` holds the time from each change in MongoDB to the broker, of the changes of the last `read`; `latest` the last
    statistics.
    """

    def __init__(self, window_ms: int) -> None:
        self.brought: dict[str, Counter[str]] = {topic: Counter() for topic in CHANGES}
        self.seen: dict[str, int | None] = {}
        self.counted: Counter[int] = Counter()
        self.windows: dict[str, list[Window]] = {topic: [] for topic in STATISTICS}
        self.latest: list[StatisticsMessage] = []
        self.lag = LatencyHistogram()
        self._window_ms = window_ms
        self._next = dict.fromkeys((*CHANGES, *STATISTICS), 0)

    def next_of(self, topic: str) -> int:
        """Return the offset up to which `topic` has been read."""
        return self._next[topic]

    async def read(self, client: Client) -> None:
        """Read on to the end of every topic; waits where the broker is away."""
        self.lag = LatencyHistogram()
        for topic in self._next:
            while events := await self._page(client, topic):
                self.take(topic, events)
                self._next[topic] = events[-1].offset + 1

    def take(self, topic: str, events: Sequence[StoredEvent]) -> None:
        """Note events of one topic, in the order of their offsets."""
        for event in events:
            if topic in CHANGES:
                self._take_change(topic, event)
            else:
                self._take_statistic(topic, event)

    async def _page(self, client: Client, topic: str) -> Sequence[StoredEvent]:
        try:
            page = await client.read(topic, self._next[topic], limit=_PAGE_EVENTS)
        except Refusal as refusal:
            if refusal.code == "unknown_topic":
                return ()
            raise
        return page.events

    def _take_change(self, topic: str, event: StoredEvent) -> None:
        message = event.decode(ChangeMessage)
        change = Change(message.op, event.id, message.at or event.timestamp)
        self.lag.record(event.timestamp - change.at)
        if topic == "users":
            self.seen[change.id] = message.document.tweets_seen if message.document else None
        if not change.is_new:
            return
        self.brought[topic][change.id] += 1
        if topic == "tweets":
            self.counted[window_start(change.at, self._window_ms)] += 1

    def _take_statistic(self, topic: str, event: StoredEvent) -> None:
        message = event.decode(StatisticsMessage)
        if not message.is_final:
            return
        start = round(datetime.fromisoformat(message.window.start).timestamp() * 1000)
        self.windows[topic].append(Window(start, _tweets(message), message.late))
        if topic == "tweets_stats":
            self.latest = [*self.latest[-2:], message]


def _tweets(message: StatisticsMessage) -> int:
    if message.tweets is not None:
        return message.tweets
    return round((message.active_users or 0) * (message.tweets_per_user or 0))
