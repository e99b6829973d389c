"""The windows of statistics that the events of the topics `tweets_stats` and `users_stats` hold.

Spark writes these messages; the dashboard, the demo, the console and the plots read them.
"""

from datetime import datetime
from operator import add
from typing import Final, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

__all__ = [
    "TWEETS_STATS",
    "USERS_STATS",
    "WINDOWS",
    "Figure",
    "KeyCount",
    "Kinds",
    "Sentiment",
    "TopUser",
    "Totals",
    "TweetsTotals",
    "TweetsWindow",
    "UsersTotals",
    "UsersWindow",
    "Window",
    "WindowSpan",
    "read_window",
]

TWEETS_STATS: Final = "tweets_stats"
USERS_STATS: Final = "users_stats"

Figure: TypeAlias = int | float | str | None
"""A figure. It is a string for NaN and Infinity, because Spark writes these as strings."""


class WindowSpan(Struct, frozen=True):
    """The begin and the end of a window, in ISO 8601. Raises ValueError if a text is not such a time."""

    start: str
    end: str

    def __post_init__(self) -> None:
        """Raise ValueError if a text is not an ISO 8601 time."""
        datetime.fromisoformat(self.start)
        datetime.fromisoformat(self.end)

    @property
    def start_at(self) -> datetime:
        """The begin of the window."""
        return datetime.fromisoformat(self.start)

    @property
    def end_at(self) -> datetime:
        """The end of the window."""
        return datetime.fromisoformat(self.end)


class Kinds(Struct, frozen=True):
    """The number of tweets of each kind."""

    original: int
    reply: int
    retweet: int
    quote: int

    def __add__(self, later: "Kinds") -> "Kinds":
        """Add the counts."""
        return Kinds(*map(add, astuple(self), astuple(later)))


class Sentiment(Struct, frozen=True):
    """The mean sentiment, and the number of tweets by its sign. Tweets without a sentiment are left out."""

    mean: float | str | None
    positive: int
    neutral: int
    negative: int

    @property
    def tweets(self) -> int:
        """The number of tweets with a sentiment, which is the weight of the mean."""
        return self.positive + self.neutral + self.negative

    def __add__(self, later: "Sentiment") -> "Sentiment":
        """Add the counts, and average the means weighted by their number of tweets."""
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


class WindowSentiment(Sentiment, frozen=True, kw_only=True):
    """The sentiment of one window, with its percentiles."""

    p50: Figure
    p95: Figure


class Engagement(Struct, frozen=True):
    """The engagement of a window's tweets."""

    mean: Figure
    p75: Figure
    p85: Figure
    p95: Figure


class Percentiles(Struct, frozen=True):
    """The median, and the 95th percentile."""

    p50: Figure
    p95: Figure


class KeyCount(Struct, frozen=True):
    """A hashtag, mention or language, and how often it occurs."""

    key: str
    count: int


class TopUser(Struct, frozen=True):
    """One of the top users of a window by one of three measures. The members for the other two measures are None."""

    key: str
    screen_name: str | None
    tweets: int | None = None
    engagement: Figure = None
    followers: Figure = None

    @property
    def name(self) -> str:
        """The screen name, or the id of a user without one."""
        return self.screen_name or self.key


class Totals(Struct, frozen=True):
    """Sums over `windows` windows. The first begins at `since`, and the last ends at `until`."""

    since: str
    until: str
    windows: int

    def __add__(self, later: Self) -> Self:
        """Add the totals of later windows: sum all figures, and take `until` from `later`."""
        names = [name for name in self.__struct_fields__ if name not in {"since", "until"}]
        sums = {name: getattr(self, name) + getattr(later, name) for name in names}
        return type(self)(since=self.since, until=later.until, **sums)


class TweetsTotals(Totals, frozen=True):
    """Sums over windows of `tweets_stats`."""

    tweets: int
    late: int
    kinds: Kinds
    sentiment: Sentiment


class UsersTotals(Totals, frozen=True):
    """Sums over windows of `users_stats`. `tweets` counts only the tweets that have a user."""

    new_users: int
    tweets: int
    late: int


class TweetsWindow(Struct, frozen=True, kw_only=True):
    """A window of `tweets_stats`."""

    window: WindowSpan
    tweets: int
    per_second: float
    kinds: Kinds
    languages: list[KeyCount]
    hashtags: list[KeyCount]
    mentions: list[KeyCount]
    sentiment: WindowSentiment
    engagement: Engagement
    unique_users: int
    lag_ms: Percentiles
    late: int
    totals: TweetsTotals | None = None
    is_final: bool = True

    def as_totals(self) -> TweetsTotals:
        """Return the totals of this window alone."""
        sentiment = self.sentiment
        weighted = Sentiment(sentiment.mean, sentiment.positive, sentiment.neutral, sentiment.negative)
        return TweetsTotals(self.window.start, self.window.end, 1, self.tweets, self.late, self.kinds, weighted)


class UsersWindow(Struct, frozen=True, kw_only=True):
    """A window of `users_stats`."""

    window: WindowSpan
    active_users: int
    new_users: int
    verified_share: float | None
    followers: Percentiles
    tweets_per_user: float | None
    top_by_tweets: list[TopUser]
    top_by_engagement: list[TopUser]
    top_by_followers: list[TopUser]
    late: int
    totals: UsersTotals | None = None
    is_final: bool = True

    @property
    def tweets(self) -> int:
        """The number of tweets of the active users, computed from the mean that the message holds."""
        return round(self.active_users * (self.tweets_per_user or 0))

    def as_totals(self) -> UsersTotals:
        """Return the totals of this window alone."""
        return UsersTotals(self.window.start, self.window.end, 1, self.new_users, self.tweets, self.late)


Window: TypeAlias = TweetsWindow | UsersWindow
W = TypeVar("W", bound=Window)

WINDOWS: Final[dict[str, type[Window]]] = {TWEETS_STATS: TweetsWindow, USERS_STATS: UsersWindow}
"""The windows that the events of each topic hold."""


def read_window(message: bytes | Raw, kind: type[W]) -> W | None:
    """Return the window that an event's message holds, or None if the message is not such a window."""
    try:
        return msgspec.json.decode(message, type=kind)
    except msgspec.MsgspecError:
        return None
