"""The panels of the picture, and the curves of each."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from tweetwire.statistics import Window

__all__ = ["TWEETS_PANELS", "USERS_PANELS", "Panel", "Series", "series_of"]


class Panel(Struct, frozen=True):
    """A drawing: its title with the unit, and for each curve the path of its value in a window.

    The axis begins at 0 if `is_from_zero`.
    """

    title: str
    curves: dict[str, tuple[str, ...]]
    is_from_zero: bool = True


class Series(Struct, frozen=True):
    """A curve; None is a gap in it."""

    times: list[datetime]
    values: list[float | None]


TWEETS_PANELS = (
    Panel("tweets per second", {"all": ("per_second",)}),
    Panel("kinds (tweets a window)", {kind: ("kinds", kind) for kind in ("original", "reply", "retweet", "quote")}),
    Panel("sentiment, −1 … 1", {name: ("sentiment", name) for name in ("mean", "p50", "p95")}, is_from_zero=False),
    Panel("engagement", {name: ("engagement", name) for name in ("mean", "p75", "p85", "p95")}),
    Panel("from MongoDB to the broker (ms)", {name: ("lag_ms", name) for name in ("p50", "p95")}),
    Panel("late tweets (a window)", {"late": ("late",)}),
)
USERS_PANELS = (
    Panel("users (a window)", {"active": ("active_users",), "new": ("new_users",)}),
    Panel("followers of active users", {name: ("followers", name) for name in ("p50", "p95")}),
    Panel("share of verified users, 0 … 1", {"verified": ("verified_share",)}),
    Panel("tweets per user", {"mean": ("tweets_per_user",)}),
)


def series_of(windows: Sequence[Window], path: Sequence[str]) -> Series:
    """Collect one figure from consecutive windows. A missing window becomes a gap in the curve."""
    times: list[datetime] = []
    values: list[float | None] = []
    for window in windows:
        start = window.window.start_at
        length = window.window.end_at - start
        if times and start - times[-1] > length:
            times.append(times[-1] + min(length, timedelta(seconds=1)))
            values.append(None)
        times.append(start)
        values.append(_value(window, path))
    return Series(times, values)


def _value(window: Window, path: Sequence[str]) -> float | None:
    value: Any = window
    for name in path:
        value = getattr(value, name, None)
    return value if isinstance(value, int | float) else None
