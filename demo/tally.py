"""Read the topics and count: the documents that arrived, the tweets of each window, and the windows published."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from demo.evidence import CountedWindow, TopicChange, window_start
from subscriber.stress.latency import LatencyHistogram
from tweetwire import Client, Refusal, StoredEvent
from tweetwire.statistics import TWEETS_STATS, USERS_STATS, WINDOWS, TweetsWindow, read_window

__all__ = ["CHANGES", "STATISTICS", "Tally"]

CHANGES = ("tweets", "users")
STATISTICS = (TWEETS_STATS, USERS_STATS)
_PAGE_EVENTS = 5000
_MARKS = frozenset({"snapshot_begin", "snapshot_end"})
"""The events of a change stream that are about a copy and not about a document."""


class UserDocument(Struct):
    """The member of a user document that the tally needs; documents of tweets do not have it."""

    tweets_seen: int | None = None


class ChangeMessage(Struct):
    """The members of a change event that the tally needs."""

    op: str
    at: int | None = None
    document: UserDocument | None = None


class Tally:
    """Counts the events of the topics, from the first event on. Each `read` continues after the previous one.

    `lag` holds the time from each change in MongoDB to the broker, for the changes of the last `read`. `latest` holds the
    last statistics.
    """

    def __init__(self, window_ms: int) -> None:
        self.brought: dict[str, Counter[str]] = {topic: Counter() for topic in CHANGES}
        self.seen: dict[str, int | None] = {}
        self.counted: Counter[int] = Counter()
        self.windows: dict[str, list[CountedWindow]] = {topic: [] for topic in STATISTICS}
        self.latest: list[TweetsWindow] = []
        self.lag = LatencyHistogram()
        self._window_ms = window_ms
        self._next = dict.fromkeys((*CHANGES, *STATISTICS), 0)

    async def read(self, client: Client) -> None:
        """Read every topic to its end, waiting while the broker is unreachable."""
        self.lag = LatencyHistogram()
        for topic in self._next:
            while events := await self._page(client, topic):
                self.note_events(topic, events)
                self._next[topic] = events[-1].offset + 1

    def note_events(self, topic: str, events: Sequence[StoredEvent]) -> None:
        """Count events of one topic, in the order of their offsets."""
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
        if message.op in _MARKS:
            return
        change = TopicChange(message.op, event.id, message.at or event.timestamp)
        self.lag.record(event.timestamp - change.at)
        if topic == "users":
            self.seen[change.id] = message.document.tweets_seen if message.document else None
        if not change.is_new:
            return
        self.brought[topic][change.id] += 1
        if topic == "tweets":
            self.counted[window_start(change.at, self._window_ms)] += 1

    def _take_statistic(self, topic: str, event: StoredEvent) -> None:
        window = read_window(event.msg, WINDOWS[topic])
        if window is None or not window.is_final:
            return
        start = round(window.window.start_at.timestamp() * 1000)
        self.windows[topic].append(CountedWindow(start, window.tweets, window.late))
        if isinstance(window, TweetsWindow):
            self.latest = [*self.latest[-2:], window]
