"""The Prometheus metrics of a publisher, read from its relays at each scrape."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from change_stream.headroom import Headroom
from change_stream.relay import Relay
from tweetwire.runtime.collectors import registered

__all__ = ["RelayCollector", "watch_relays"]

Read = Callable[[Relay], float]

_PREFIX = "tweetwire_change_stream"
_LABELS = ("collection", "topic")


class RelayCollector(Collector):
    """The metrics of `relays`, each labelled with its collection and topic.

    `lag_seconds` is the current time minus the cluster time of the position. MongoDB moves the position of a quiet stream
    every ten seconds, so the lag stays small on an idle stream and grows on a stuck one.
    """

    def __init__(self, relays: Sequence[Relay], headroom: Headroom | None = None) -> None:
        self._relays = relays
        self._headroom = headroom

    def collect(self) -> Iterator[Metric]:
        """Return the current figures."""
        yield self._operations()
        yield self._counter("confirmed", "events that the broker has confirmed", lambda r: r.confirmations.count)
        yield self._counter(
            "duplicates", "confirmed events that the broker had already", lambda r: r.confirmations.duplicates
        )
        yield self._counter("rejected", "changes that could not be converted", lambda r: r.rejected.count)
        yield self._counter("omitted", "events sent without their documents", lambda r: r.converter.omitted)
        yield self._counter("interruptions", "failed requests to MongoDB", lambda r: r.outage.count)
        yield self._counter("failures", "sessions ended by an error of the broker", lambda r: r.failures)
        yield self._counter(
            "takeovers", "times this publisher took over from another", lambda r: r.leadership.takeovers
        )
        yield self._gauge(
            "leading", "1 while this publisher leads, 0 while it stands by", lambda r: r.leadership.is_leading
        )
        yield self._gauge("copying", "1 while a snapshot runs", lambda r: r.copied is not None)
        yield self._gauge("copied_documents", "documents that the running snapshot has copied", lambda r: r.copied or 0)
        yield self._gauge("connected", "1 while MongoDB answers", lambda r: not r.outage.is_on)
        yield self._gauge("ahead_changes", "changes fetched and not yet converted", lambda r: r.ahead.changes)
        yield self._gauge("ahead_bytes", "bytes fetched and not yet converted", lambda r: r.ahead.bytes)
        yield self._gauge("position_seconds", "cluster time of the position, seconds since 1970", _position_s)
        if self._headroom is not None:
            text = "how far the position is from the oldest change in MongoDB's oplog; NaN if unknown"
            yield self._gauge("headroom_seconds", text, self._headroom.of)
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


def watch_relays(relays: Sequence[Relay], headroom: Headroom) -> AbstractContextManager[None]:
    """Register the metrics of `relays` for the length of the context."""
    return registered(RelayCollector(relays, headroom))


def _position_s(relay: Relay) -> float:
    return relay.outlet.position.time.time if relay.outlet is not None else time.time()
