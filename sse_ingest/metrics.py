"""The ingester's Prometheus metrics: the current accounts and pools at each scrape."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sse_ingest.ingest import Ingest, Line

__all__ = ["IngestCollector", "exported"]

_COUNTERS = {
    "read": "events read",
    "nested": "tweets found inside other tweets",
    "stored": "tweets stored",
    "already_there": "tweets that were already stored",
    "notices": "events that are not tweets by design",
    "rejected": "unusable events and tweets",
}

_Value = Callable[[Line], float]


class IngestCollector(Collector):
    """Reads the figures of `ingest` at each scrape."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, each with the source as its label."""
        for member, text in _COUNTERS.items():
            yield self._counter(f"tweetwire_ingest_{member}", text, partial(_of_account, member))
        yield self._counter(
            "tweetwire_ingest_panics", "workers ended by a panic message of the source", lambda line: line.pool.panics
        )
        yield self._counter(
            "tweetwire_ingest_crashes", "workers that died of another cause", lambda line: line.pool.crashes
        )
        yield self._counter("tweetwire_ingest_connections", "connections", lambda line: line.reader.state.connections)
        yield self._counter(
            "tweetwire_ingest_gaps", "reconnects after which events were missed", lambda line: line.reader.state.gaps
        )
        yield self._gauge("tweetwire_ingest_workers", "worker processes", lambda line: line.pool.workers)
        yield self._gauge("tweetwire_ingest_waiting", "events waiting for a worker", lambda line: len(line.inbox))
        yield self._gauge("tweetwire_ingest_in_flight", "read and not yet settled", lambda line: line.account.in_flight)
        yield self._gauge(
            "tweetwire_ingest_worker_seconds",
            "mean time of an event in a worker",
            lambda line: line.pool.seconds_per_event,
        )
        store = self._ingest.store
        yield CounterMetricFamily("tweetwire_ingest_mongodb_retries", "batches tried again", store.retries)
        yield GaugeMetricFamily(
            "tweetwire_ingest_mongodb_takes_batches",
            "1 while MongoDB accepts batches, else 0",
            int(store.outage is None),
        )

    def _counter(self, name: str, text: str, value: _Value) -> Metric:
        family = CounterMetricFamily(name, text, labels=["source"])
        for line in self._ingest.lines:
            family.add_metric([line.reader.source.name], value(line))
        return family

    def _gauge(self, name: str, text: str, value: _Value) -> Metric:
        family = GaugeMetricFamily(name, text, labels=["source"])
        for line in self._ingest.lines:
            family.add_metric([line.reader.source.name], value(line))
        return family


def _of_account(member: str, line: Line) -> float:
    return float(getattr(line.account, member))


@contextmanager
def exported(ingest: Ingest, registry: CollectorRegistry = REGISTRY) -> Iterator[None]:
    """Export the metrics of `ingest` for the length of the context."""
    collector = IngestCollector(ingest)
    registry.register(collector)
    try:
        yield
    finally:
        registry.unregister(collector)
