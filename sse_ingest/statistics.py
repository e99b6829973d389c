"""Percentiles of what took how long, and what `logger_stats` says every few seconds."""

from collections import deque
from collections.abc import Sequence
from math import ceil

__all__ = ["PERCENTILES", "Timings", "percentile", "summary_ms"]

PERCENTILES = (75, 85, 95)
SAMPLES_MAX = 20_000


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of values in ascending order; `share` is 0 … 100. There must be a value."""
    return ordered[max(ceil(share / 100 * len(ordered)), 1) - 1]


def summary_ms(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return p75, p85 and p95 of durations in milliseconds; None where nothing was measured."""
    ordered = sorted(seconds)
    return {f"p{share}": round(percentile(ordered, share) * 1000, 3) if ordered else None for share in PERCENTILES}


class Timings:
    """Durations in seconds since they were last taken, the latest of them where there are very many."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)

    def add(self, *seconds: float) -> None:
        """Note durations."""
        self._samples.extend(seconds)

    def take(self) -> dict[str, float | None]:
        """Return the percentiles of what was noted, in milliseconds, and begin anew."""
        summary = summary_ms(self._samples)
        self._samples.clear()
        return summary
