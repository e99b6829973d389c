"""The Prometheus metrics of a bridge, read from its routes at each scrape."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from bridge.presence import Presence
from bridge.standing import Standing
from tweetwire.runtime.collectors import registered

__all__ = ["PresenceCollector", "RouteCollector", "watch_presences", "watch_routes"]

Read = Callable[[Standing], float]

_PREFIX = "tweetwire_bridge"
_LABELS = ("route", "topic")


class RouteCollector(Collector):
    """The metrics of routes, each labelled with its route and topic."""

    def __init__(self, standings: Sequence[Standing]) -> None:
        self._standings = standings

    def collect(self) -> Iterator[Metric]:
        """Return the current figures."""
        yield self._counter("carried", "events that the other side has", lambda s: s.carried)
        yield self._counter(
            "left_out", "events not carried, because they have passed the place before", lambda s: s.left_out
        )
        yield self._counter("rejected", "events that the other side will never accept", lambda s: s.rejected)
        yield self._counter("gap_events", "events removed before they were carried", lambda s: s.gaps)
        yield self._counter("resent", "events sent again because the engine had lost them", lambda s: s.resent)
        yield self._counter("repeated", "events that the broker had already", lambda s: s.repeated)
        yield self._counter("lost_copies", "how often the central stream was another one than before", lambda s: s.lost)
        yield self._counter("failures", "sessions ended by an error", lambda s: s.failures)
        yield self._gauge("connected", "1 while the broker and the engine answer", lambda s: s.is_connected)
        yield self._gauge("lag_seconds", "age of the oldest event in hand", lambda s: s.lag_s())

    def _counter(self, name: str, text: str, read: Read) -> CounterMetricFamily:
        family = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=_LABELS)
        for standing in self._standings:
            family.add_metric([standing.route, standing.topic], read(standing))
        return family

    def _gauge(self, name: str, text: str, read: Read) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=_LABELS)
        for standing in self._standings:
            family.add_metric([standing.route, standing.topic], read(standing))
        return family


class PresenceCollector(Collector):
    """The metrics of heartbeats, each labelled with the address of the engine."""

    def __init__(self, presences: Sequence[Presence]) -> None:
        self._presences = presences

    def collect(self) -> Iterator[Metric]:
        """Return the current figures."""
        families: list[tuple[CounterMetricFamily | GaugeMetricFamily, Callable[[Presence], float]]] = [
            (
                CounterMetricFamily(
                    f"{_PREFIX}_heartbeats", "heartbeats that the engine has taken", labels=("centre",)
                ),
                lambda one: one.announced,
            ),
            (
                CounterMetricFamily(
                    f"{_PREFIX}_heartbeat_failures", "heartbeats or views that failed", labels=("centre",)
                ),
                lambda one: one.failures,
            ),
            (
                GaugeMetricFamily(f"{_PREFIX}_brokers", "brokers that were seen at the engine", labels=("centre",)),
                lambda one: one.brokers,
            ),
            (
                GaugeMetricFamily(f"{_PREFIX}_silent_brokers", "those of them that are silent", labels=("centre",)),
                lambda one: one.silent,
            ),
        ]
        for family, read in families:
            for presence in self._presences:
                family.add_metric([presence.centre], read(presence))
            yield family


def watch_presences(presences: Sequence[Presence]) -> AbstractContextManager[None]:
    """Register the metrics of heartbeats for the length of the context."""
    return registered(PresenceCollector(presences))


def watch_routes(standings: Sequence[Standing]) -> AbstractContextManager[None]:
    """Register the metrics of routes for the length of the context."""
    return registered(RouteCollector(standings))
