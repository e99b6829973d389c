"""The metrics of the tier for Prometheus."""

import time
from collections.abc import Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from broker.tiers.figures import TierFigures

__all__ = ["TierCollector"]


class TierCollector(Collector):
    """Collects the figures of a tier."""

    def __init__(self, figures: TierFigures) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        """Return no metrics, since the registry would otherwise call `collect` to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        figures = self._figures
        # Before the first manifest the lag is unknown, and at least the time since the start.
        lag_s = time.time() - (figures.covered_ms or figures.started_ms) / 1000
        yield _counter("segments_uploaded", "segments that were uploaded", figures.segments)
        yield _counter("uploaded_bytes", "bytes of the lines of uploaded segments", figures.bytes)
        yield _counter("stored_bytes", "bytes that were uploaded for segments, compressed", figures.stored_bytes)
        yield _counter("manifests", "manifests that were written", figures.manifests)
        yield _counter("failures", "requests to the store that failed and were repeated", figures.failures)
        yield _gauge("segments_waiting", "closed segments that are not in the bucket yet", figures.waiting)
        yield _gauge("manifest_number", "number of the newest manifest", figures.manifest)
        yield _gauge("lag_seconds", "age of the newest moment to which a restore can return", max(0.0, lag_s))
        yield _gauge("away", "1 while the store fails", int(figures.is_away))
        yield _gauge("fenced", "1 after another broker has taken over the bucket", int(figures.is_fenced))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"tweetwire_broker_tier_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tweetwire_broker_tier_{name}", text, value=value)
