"""The run's Prometheus metrics, read from the ledgers at each scrape."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from subscriber.stress.latency import LatencyHistogram
from subscriber.stress.ledger import Ledger

__all__ = ["RunCollector"]

_BOUNDS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0, 30_000.0)

_FIGURES: dict[str, tuple[str, Callable[[Ledger], int]]] = {
    "received": ("events that arrived, each offset once", lambda ledger: len(ledger.received)),
    "settled": ("events whose ack the broker confirmed", lambda ledger: len(ledger.settled)),
    "redelivered": ("events that arrived again before their ack was confirmed", lambda ledger: ledger.redelivered),
    "doubled": ("events that arrived again after their ack was confirmed", lambda ledger: ledger.doubled),
}


class RunCollector(Collector):
    """Collects the counters of all ledgers and the latencies from the run's own figures."""

    def __init__(self, ledgers: Sequence[Ledger], latency: LatencyHistogram) -> None:
        self._ledgers = ledgers
        self._latency = latency

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        for name, (text, figure) in _FIGURES.items():
            family = CounterMetricFamily(f"tweetwire_subscriber_{name}", text, labels=["topic", "subscription"])
            for ledger in list(self._ledgers):
                family.add_metric([ledger.topic, ledger.subscription], figure(ledger))
            yield family
        yield self._latency_metric()

    def _latency_metric(self) -> Metric:
        bounds = [f"{bound / 1000:g}" for bound in _BOUNDS_MS]
        counts = self._latency.cumulative(_BOUNDS_MS)
        family = HistogramMetricFamily(
            "tweetwire_subscriber_latency_seconds", "time from the broker's timestamp to the arrival"
        )
        buckets = [*zip(bounds, map(float, counts), strict=True), ("+Inf", float(self._latency.count))]
        family.add_metric([], buckets=buckets, sum_value=self._latency.sum_ms / 1000)
        return family
