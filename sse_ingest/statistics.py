"""Percentiles of durations, as the topic `logger_stats` reports them."""

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
    """Return p75, p85 and p95 of durations in milliseconds; None without any durations."""
    ordered = sorted(seconds)
    return {f"p{share}": round(percentile(ordered, share) * 1000, 3) if ordered else None for share in PERCENTILES}


class Timings:
    """Durations in seconds since the last `take`, at most the newest `SAMPLES_MAX`."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)

    def add_seconds(self, *seconds: float) -> None:
        """Add durations."""
        self._samples.extend(seconds)

    def take_percentiles(self) -> dict[str, float | None]:
        """Return the percentiles of the durations in milliseconds, and forget the durations."""
        summary = summary_ms(self._samples)
        self._samples.clear()
        return summary
