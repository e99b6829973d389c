"""Reading the statistics topics: windows as the dictionaries that their events carry."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from spark.link import Link
from spark.totals import Kinds, TweetsTotals, UsersTotals

__all__ = ["Tail", "Window", "start_of", "windows_since"]

Window = dict[str, Any]


def start_of(window: Window) -> datetime:
    """Give the beginning of a window."""
    return datetime.fromisoformat(window["window"]["start"])


def windows_since(link: Link, topic: str, since: datetime) -> list[Window]:
    """Give the windows of a topic that begin at or after `since`, in their order; none where there is no such topic.

    A window is published after its end, so the broker's times find the first of them.
    """
    first, head = link.offset_at(topic, since), link.heads([topic])[topic].next
    found = [window for lines in link.chunks(topic, first, head) for window in _windows_of(lines)]
    return sorted((window for window in found if start_of(window) >= since), key=start_of)


class Tail:
    """Follows a topic from its last `most` windows on."""

    def __init__(self, topic: str, most: int) -> None:
        self.topic = topic
        self._most = most
        self._next: int | None = None

    def fresh(self, link: Link) -> list[Window]:
        """Give the windows that came since the last call."""
        head = link.heads([self.topic])[self.topic]
        if self._next is None or not head.earliest <= self._next <= head.next:
            self._next = max(head.earliest, head.next - self._most)
        found = [window for lines in link.chunks(self.topic, self._next, head.next) for window in _windows_of(lines)]
        self._next = head.next
        return found


# Of a document in which somebody has written NaN, Spark writes the word.
_Figure = float | str | None


class _Span(Struct):
    start: datetime
    end: datetime


class _Mean(Struct):
    mean: _Figure


class _Percentiles(Struct):
    p50: _Figure
    p95: _Figure


class _Count(Struct):
    key: str
    count: int


class _User(Struct):
    key: str
    screen_name: str | None
    tweets: int


class _TweetsWindow(Struct):
    window: _Span
    tweets: int
    per_second: float
    kinds: Kinds
    languages: list[_Count]
    hashtags: list[_Count]
    mentions: list[_Count]
    sentiment: _Mean
    engagement: _Mean
    unique_users: int
    lag_ms: _Percentiles
    late: int
    totals: TweetsTotals | None = None


class _UsersWindow(Struct):
    window: _Span
    active_users: int
    new_users: int
    verified_share: float | None
    followers: _Percentiles
    tweets_per_user: float | None
    top_by_tweets: list[_User]
    totals: UsersTotals | None = None


class _Line(Struct):
    msg: Raw


_decode = msgspec.json.Decoder(_Line).decode


def _windows_of(lines: Iterable[bytes]) -> Iterator[Window]:
    """Give the windows among a topic's events; what somebody else has published there is passed over."""
    for line in lines:
        message = _decode(line).msg
        if _is(message, _TweetsWindow) or _is(message, _UsersWindow):
            yield msgspec.json.decode(message)


def _is(message: Raw, kind: type[Struct]) -> bool:
    try:
        msgspec.json.decode(message, type=kind)
    except msgspec.ValidationError:
        return False
    return True
