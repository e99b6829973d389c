"""Totals since a statistics topic's first window: each window's event carries the sums of all up to it.

What makes them exact: the events of a query come in the order of their windows, each beginning no earlier than the one
before it ends. So the newest totals in the topic tell by their `until` which windows they hold. A commit that was cut in
the middle and runs again finds there what it had stored, does not count that anew, and gives the rest the sums that it
would have had; what is stored already is a duplicate to the broker. The topic is the only place where sums are kept.
"""

from collections.abc import Iterable, Sequence
from operator import add
from typing import Self

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from broker import Event, SyncClient
from spark.link import chunks_back

__all__ = ["TOTALS", "Totals", "TweetsTotals", "UsersTotals", "newest_totals", "with_totals"]

_TIMES = ("since", "until")


class _Span(Struct):
    start: str
    end: str


class Kinds(Struct, frozen=True):
    """Tweets by kind."""

    original: int
    reply: int
    retweet: int
    quote: int

    def __add__(self, later: "Kinds") -> "Kinds":
        """Add."""
        return Kinds(*map(add, astuple(self), astuple(later)))


class Sentiment(Struct, frozen=True):
    """The mean of the tweets that have a sentiment, and how many those are by its sign."""

    # Of a document in which somebody has written NaN, Spark writes the word.
    mean: float | str | None
    positive: int
    neutral: int
    negative: int

    @property
    def tweets(self) -> int:
        """The weight of the mean."""
        return self.positive + self.neutral + self.negative

    def __add__(self, later: "Sentiment") -> "Sentiment":
        """Add; the means by their weights."""
        return Sentiment(
            self._mean_with(later),
            self.positive + later.positive,
            self.neutral + later.neutral,
            self.negative + later.negative,
        )

    def _mean_with(self, later: "Sentiment") -> float | None:
        if not isinstance(later.mean, float):
            return self.mean if isinstance(self.mean, float) else None
        if not isinstance(self.mean, float):
            return later.mean
        return self.mean + (later.mean - self.mean) * later.tweets / max(self.tweets + later.tweets, 1)


class _TweetsWindow(Struct):
    window: _Span
    tweets: int
    late: int
    kinds: Kinds
    sentiment: Sentiment


class _UsersWindow(Struct):
    window: _Span
    active_users: int
    new_users: int
    tweets_per_user: float | None
    late: int


class Totals(Struct, frozen=True):
    """Sums over `windows` windows, the first of which begins at `since` and the last of which ends at `until`."""

    since: str
    until: str
    windows: int

    @classmethod
    def of(cls, message: bytes) -> Self:
        """Give those of one window. Raises msgspec.ValidationError for what is none."""
        raise NotImplementedError

    def __add__(self, later: Self) -> Self:
        """Add windows that follow: everything but the times is summed."""
        names = [name for name in self.__struct_fields__ if name not in _TIMES]
        sums = {name: getattr(self, name) + getattr(later, name) for name in names}
        return type(self)(since=self.since, until=later.until, **sums)


class TweetsTotals(Totals, frozen=True):
    """What `tweets_stats` sums."""

    tweets: int
    late: int
    kinds: Kinds
    sentiment: Sentiment

    @classmethod
    def of(cls, message: bytes) -> Self:
        """Give those of one window. Raises msgspec.ValidationError for what is none."""
        one = msgspec.json.decode(message, type=_TweetsWindow)
        return cls(one.window.start, one.window.end, 1, one.tweets, one.late, one.kinds, one.sentiment)


class UsersTotals(Totals, frozen=True):
    """What `users_stats` sums; `tweets` are those that have a user."""

    new_users: int
    tweets: int
    late: int

    @classmethod
    def of(cls, message: bytes) -> Self:
        """Give those of one window. Raises msgspec.ValidationError for what is none."""
        one = msgspec.json.decode(message, type=_UsersWindow)
        tweets = round(one.active_users * (one.tweets_per_user or 0))
        return cls(one.window.start, one.window.end, 1, one.new_users, tweets, one.late)


TOTALS: dict[str, type[Totals]] = {"tweets_stats": TweetsTotals, "users_stats": UsersTotals}
"""By the name of the statistic."""


def with_totals(events: Iterable[Event], statistic: str, base: Totals | None) -> list[Event]:
    """Add to the windows `events`, in their order, the member `totals`, which goes on from `base`.

    A window that begins before the totals end is in them, or was left to an older query, and changes nothing. `msg` is
    the encoded message. Raises msgspec.ValidationError where it is no window of `statistic`.
    """
    totals, summed = base, []
    for event in events:
        one = TOTALS[statistic].of(event.msg)
        if totals is None:
            totals = one
        elif one.since >= totals.until:
            totals += one
        message = msgspec.json.decode(event.msg, type=dict[str, Raw]) | {"totals": totals}
        summed.append(replace(event, msg=Raw(msgspec.json.encode(message))))
    return summed


def newest_totals(client: SyncClient, topic: str, statistic: str, producer: str | None = None) -> Totals | None:
    """Find the totals that were stored last, by `producer` where one is named; None where the topic holds none (any more)."""
    for _, chunks in chunks_back(client, topic):
        newest = None
        for lines in chunks:
            newest = _last_of(lines, TOTALS[statistic], producer) or newest
        if newest is not None:
            return newest
    return None


class _Message(Struct):
    totals: Raw


class _Line(Struct):
    msg: Raw
    producer: str | None = None


def _totals_of(line: bytes, kind: type[Totals], producer: str | None) -> Totals | None:
    event = msgspec.json.decode(line, type=_Line)
    if producer is not None and event.producer != producer:
        return None
    try:
        return msgspec.json.decode(msgspec.json.decode(event.msg, type=_Message).totals, type=kind)
    except msgspec.ValidationError:
        return None


def _last_of(lines: Sequence[bytes], kind: type[Totals], producer: str | None) -> Totals | None:
    found = (_totals_of(line, kind, producer) for line in reversed(lines))
    return next((one for one in found if one is not None), None)
