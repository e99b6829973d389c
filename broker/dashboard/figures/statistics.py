"""The windows of `tweets_stats` and `users_stats` as series and lists."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from broker.dashboard.history import Series
from broker.dashboard.words import number
from broker.events import StoredEvent

__all__ = ["TWEETS_STATS", "USERS_STATS", "WINDOWS_MAX", "named", "ranks", "tweets_series", "user_rows", "windows"]

TWEETS_STATS: Final = "tweets_stats"
USERS_STATS: Final = "users_stats"
WINDOWS_MAX: Final = 90


def windows(events: Iterable[StoredEvent]) -> list[dict[str, Any]]:
    """Return the messages of final windows by their start, each window once."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        message = event.decode()
        if isinstance(message, dict) and isinstance(message.get("window"), dict) and message.get("is_final", True):
            found[str(message["window"].get("start"))] = message
    return [found[start] for start in sorted(found)]


def tweets_series(messages: Sequence[dict[str, Any]], *path: str) -> list[tuple[int, float]]:
    """Return a figure of each window, found by its names, at the time when the window ended (ms since 1970)."""
    points = []
    for message in messages:
        value: Any = message
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int | float):
            points.append((_milliseconds(message["window"]["end"]), float(value)))
    return points


def named(messages: Sequence[dict[str, Any]], **paths: Sequence[str]) -> Series:
    """Return several such series by name."""
    return {name: tweets_series(messages, *path) for name, path in paths.items()}


def ranks(message: dict[str, Any], member: str) -> list[tuple[str, int]]:
    """Return a window's top list, the greatest first."""
    return [
        (str(one["key"]), int(one["count"])) for one in message.get(member) or () if "key" in one and "count" in one
    ]


def user_rows(message: dict[str, Any], by: str) -> list[dict[str, Any]]:
    """Return the users who are first by `by`: tweets, engagement or followers."""
    return [
        {"place": place, "user": f"@{one.get('screen_name') or one.get('key')}", by: number(one.get(by))}
        for place, one in enumerate(message.get(f"top_by_{by}") or (), start=1)
    ]


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
