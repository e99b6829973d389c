"""Convert the windows of `tweets_stats` and `users_stats` to series and lists."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from dashboard.history import Series
from dashboard.words import number
from tweetwire.protocol.events import StoredEvent
from tweetwire.statistics import Figure, KeyCount, TopUser, UsersWindow, Window, read_window

__all__ = ["named", "ranks", "user_rows", "windows"]

W = TypeVar("W", bound=Window)


def windows(events: Iterable[StoredEvent], kind: type[W]) -> list[W]:
    """Return the final windows in the order of their start, each window once."""
    found: dict[str, W] = {}
    for event in events:
        window = read_window(event.msg, kind)
        if window is not None and window.is_final:
            found[window.window.start] = window
    return [found[start] for start in sorted(found)]


def named(found: Sequence[Window], **paths: Sequence[str]) -> Series:
    """Return series of figures by name. Each figure is found in a window by its path of members; see `_series`."""
    return {name: _series(found, path) for name, path in paths.items()}


def ranks(entries: Iterable[KeyCount]) -> list[tuple[str, int]]:
    """Return a window's top list, the largest count first."""
    return [(one.key, one.count) for one in entries]


def user_rows(window: UsersWindow, by: str) -> list[dict[str, Any]]:
    """Return the top users by `by`: tweets, engagement or followers."""
    entries: list[TopUser] = getattr(window, f"top_by_{by}")
    return [
        {"place": place, "user": f"@{one.name}", by: _figure_text(getattr(one, by))}
        for place, one in enumerate(entries, start=1)
    ]


def _series(found: Sequence[Window], path: Sequence[str]) -> list[tuple[int, float]]:
    """Return a figure of each window that has it, at the time when the window ended (ms since 1970)."""
    points = []
    for window in found:
        value: Any = window
        for name in path:
            value = getattr(value, name, None)
        if isinstance(value, int | float):
            points.append((round(window.window.end_at.timestamp() * 1000), float(value)))
    return points


def _figure_text(value: Figure) -> str:
    return value if isinstance(value, str) else number(value)
