"""What a publisher measures, read from its relays when somebody asks."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from change_stream.relay import Relay

__all__ = ["RelayCollector", "watch_relays"]

Read = Callable[[Relay], float]

_PREFIX = "tweetwire_change_stream"
_LABELS = ("collection", "topic")


class RelayCollector(Collector):
    """The metrics of `relays`, each labelled with its collection and topic.

    `lag_seconds` is now less the cluster time of the position. MongoDB moves a quiet stream's position every ten seconds, so
    an idle stream has a small lag and a stuck one a growing one.
    """

    def __init__(self, relays: Sequence[Relay]) -> None:
        self._relays = relays

    def collect(self) -> Iterator[Metric]:
        """Read the figures of this moment."""
        yield self._operations()
        yield self._counter("confirmed", "events that the broker has confirmed", lambda r: r.confirmed)
        yield self._counter("duplicates", "of these, the ones that it had already", lambda r: r.duplicates)
        yield self._counter("rejected", "changes that could not be converted", lambda r: r.rejected.count)
        yield self._counter("omitted", "events without their documents, for their size", lambda r: r.converter.omitted)
        yield self._counter("interruptions", "failures to reach MongoDB", lambda r: r.outage.count)
        yield self._counter("failures", "sessions that the broker ended", lambda r: r.failures)
        yield self._gauge("connected", "1 while MongoDB answers", lambda r: not r.outage.is_on)
        yield self._gauge("ahead_changes", "changes fetched and not yet converted", lambda r: r.ahead.changes)
        yield self._gauge("ahead_bytes", "bytes of the same", lambda r: r.ahead.bytes)
        yield self._gauge("position_seconds", "cluster time of the position, seconds since 1970", _position_s)
        yield self._gauge("lag_seconds", "age of the position", lambda r: max(0.0, time.time() - _position_s(r)))

    def _operations(self) -> CounterMetricFamily:
        family = CounterMetricFamily(f"{_PREFIX}_events", "events by operation", labels=[*_LABELS, "operation"])
        for relay in self._relays:
            for operation, count in relay.converter.operations.items():
                family.add_metric([relay.collection, relay.topic, operation], count)
        return family

    def _counter(self, name: str, text: str, read: Read) -> CounterMetricFamily:
        family = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=_LABELS)
        for relay in self._relays:
            family.add_metric([relay.collection, relay.topic], read(relay))
        return family

    def _gauge(self, name: str, text: str, read: Read) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=_LABELS)
        for relay in self._relays:
            family.add_metric([relay.collection, relay.topic], read(relay))
        return family


@contextmanager
def watch_relays(relays: Sequence[Relay]) -> Iterator[None]:
    """Serve the metrics of `relays` for as long as they run."""
    collector = RelayCollector(relays)
    REGISTRY.register(collector)
    try:
        yield
    finally:
        REGISTRY.unregister(collector)


def _position_s(relay: Relay) -> float:
    return relay.outlet.position.time.time if relay.outlet is not None else time.time()
