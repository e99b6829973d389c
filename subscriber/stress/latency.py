"""A histogram of latencies, whose number of buckets does not grow with the number of events."""

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["LatencyHistogram"]

_LEAST_MS = 0.1
_GROWTH = 1.02
"""The ratio of a bucket's bounds: a percentile read from a bucket is at most 1 % off."""
_LOG_GROWTH = math.log(_GROWTH)


class LatencyHistogram:
    """Counts of latencies by logarithmic buckets, as in HdrHistogram: 1,000 buckets reach from 0.1 ms to a day."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0

    def record(self, latency_ms: float, events: int = 1) -> None:
        """Count `events` that each took `latency_ms`. If clocks differ, a value may be negative; it counts as 0."""
        latency_ms = max(latency_ms, 0.0)
        bucket = _bucket(latency_ms)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + events
        self.count += events
        self.sum_ms += latency_ms * events
        self.max_ms = max(self.max_ms, latency_ms)

    def percentile(self, share: float) -> float | None:
        """Return a percentile in ms (nearest rank): `share` (0–1) of the events took at most this time. None without events."""
        if not self.count:
            return None
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(_middle_ms(bucket), self.max_ms)
        raise AssertionError("the buckets hold fewer events than were counted")

    def as_counts(self) -> dict[str, Any]:
        """Return the counts as plain numbers, for another process."""
        return {"buckets": self._buckets, "sum_ms": self.sum_ms, "max_ms": self.max_ms}

    def add_counts(self, counts: Mapping[str, Any]) -> None:
        """Add the counts that another histogram's `as_counts` returned."""
        for bucket, events in counts["buckets"].items():
            self._buckets[int(bucket)] = self._buckets.get(int(bucket), 0) + events
            self.count += events
        self.sum_ms += counts["sum_ms"]
        self.max_ms = max(self.max_ms, counts["max_ms"])

    def cumulative(self, bounds_ms: tuple[float, ...]) -> list[int]:
        """Return the number of events up to each bound, the form of Prometheus buckets."""
        counts = [0] * len(bounds_ms)
        for bucket, events in list(self._buckets.items()):  # the metrics are read from another thread
            middle = _middle_ms(bucket)
            for place, bound in enumerate(bounds_ms):
                if middle <= bound:
                    counts[place] += events
        return counts


def _bucket(latency_ms: float) -> int:
    return math.floor(math.log(latency_ms / _LEAST_MS) / _LOG_GROWTH) if latency_ms > _LEAST_MS else -1


def _middle_ms(bucket: int) -> float:
    return _LEAST_MS * _GROWTH ** (bucket + 0.5) if bucket >= 0 else _LEAST_MS / 2
