"""The broker's figures of the last minutes, and the rates of its counters."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["Counter", "History", "Look", "Series", "counter_of"]

LOOKS_MAX: Final = 240
SPAN: Final = 3
"""A rate is computed over this number of looks: counters grow by batches, so the rates between two looks would jump."""

Series = dict[str, list[tuple[int, float]]]
"""Points (ms since 1970, value) by name."""


Counter = Callable[[Mapping[str, Any]], int | None]
"""Finds a figure in the answer to ``stats``. Return None if it is missing."""


class Look(NamedTuple):
    """The answer to ``stats`` at a time in seconds since 1970."""

    at_s: float
    stats: Mapping[str, Any]


class History:
    """The latest looks, oldest first."""

    def __init__(self, looks_max: int = LOOKS_MAX) -> None:
        self._looks: deque[Look] = deque(maxlen=looks_max)

    def note(self, at_s: float, stats: Mapping[str, Any]) -> None:
        """Add a look."""
        self._looks.append(Look(at_s, stats))

    @property
    def latest(self) -> Look | None:
        """The last look, None before the first one."""
        return self._looks[-1] if self._looks else None

    def topic_rates(self) -> Series:
        """Return the rate of events a second of each existing topic, over time."""
        names = self._looks[-1].stats["topics"] if self._looks else ()
        return {name: self.rates(counter_of(name, "next")) for name in names}

    def rates(self, counter: Counter) -> list[tuple[int, float]]:
        """Return a counter's rate per second over time. A look without the counter, or with a lower value, is left out."""
        return [
            (round(now.at_s * 1000), (after - before) / (now.at_s - then.at_s))
            for then, now in self._pairs()
            if (after := counter(now.stats)) is not None
            and (before := counter(then.stats)) is not None
            and after >= before
        ]

    def rate_now(self, counter: Counter) -> float:
        """Return a counter's current rate, 0 if it is unknown."""
        looks = list(self._looks)[-SPAN - 1 :]
        if len(looks) < 2 or (after := counter(looks[-1].stats)) is None:
            return 0.0
        before = counter(looks[0].stats)
        if before is None or after < before or looks[-1].at_s <= looks[0].at_s:
            return 0.0
        return (after - before) / (looks[-1].at_s - looks[0].at_s)

    def backlogs(self) -> Series:
        """Return the events pending or in flight of each existing subscription over time, by ``topic · subscription``."""
        if not self._looks:
            return {}
        found: Series = {}
        for topic, report in self._looks[-1].stats["topics"].items():
            for name in report["subscriptions"]:
                found[f"{topic} · {name}"] = [
                    (round(look.at_s * 1000), figures["pending"] + figures["in_flight"])
                    for look in self._looks
                    if (figures := _subscription(look.stats, topic, name))
                ]
        return found

    def _pairs(self) -> Iterator[tuple[Look, Look]]:
        looks = list(self._looks)
        for place, now in enumerate(looks[1:], start=1):
            then = looks[max(0, place - SPAN)]
            if now.at_s > then.at_s:
                yield then, now


def counter_of(topic: str, member: str) -> Counter:
    """Return a function that finds a topic's counter in the answer to ``stats``."""

    def find(stats: Mapping[str, Any]) -> int | None:
        report = stats["topics"].get(topic)
        return None if report is None else report[member]

    return find


def _subscription(stats: Mapping[str, Any], topic: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = stats["topics"].get(topic, {}).get("subscriptions", {}).get(name, {})
    return found
