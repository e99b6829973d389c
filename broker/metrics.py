"""The broker's figures for Prometheus: those of ``stats``, under names in Prometheus' conventions.

Prometheus asks in a thread of its own. The figures are read by the event loop in its stead, between two decisions of the
core, so that they agree with each other and no figure needs a lock; the thread then only writes down what it was given.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from anyio.from_thread import BlockingPortal
from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from broker.core import reports
from broker.server import Server

__all__ = ["BrokerCollector", "Figures", "figures", "watch"]


_Rows: TypeAlias = dict[tuple[str, ...], Mapping[str, Any]]
"""Figures by the values of their labels."""


class Figures(NamedTuple):
    """What was read at one moment: the answer to ``stats`` of somebody who may see everything, and ended connections."""

    stats: dict[str, Any]
    ends: dict[str, int]


class _Figure(NamedTuple):
    """A member of ``stats`` as a metric; `scale` turns its unit into Prometheus' base unit."""

    member: str
    name: str
    text: str
    is_counter: bool = False
    scale: float = 1.0


_BROKER: Final = (
    _Figure("connections", "connections", "open connections"),
    _Figure("commands", "commands", "commands, each publish of a run counted", is_counter=True),
    _Figure("refused", "refused_commands", "commands that were refused", is_counter=True),
    _Figure("rejected_lines", "rejected_lines", "refused lines that were to be events", is_counter=True),
    _Figure("delivered", "deliveries", "events given to connections, each try counted", is_counter=True),
    _Figure("acked", "acked_events", "events settled by an ack", is_counter=True),
    _Figure("damaged", "damaged_events", "damaged events met in the logs", is_counter=True),
)
_EVENT_SOURCE: Final = (
    _Figure("event_source_clients", "event_source_clients", "clients of the event source that are connected"),
    _Figure("event_source_sources", "event_source_sources", "event sources that are served: one or none"),
    _Figure("event_source_held", "event_source_held_events", "events that wait for one with a lower sequence"),
)
"""Only there while the gateway is on."""
_HANDSHAKES: Final = (_Figure("open", "handshakes_open", "exactly-once handshakes that are not at their end"),)
_TOPIC: Final = (
    _Figure("earliest", "log_earliest_offset", "lowest offset that can be read"),
    _Figure("next", "log_next_offset", "offset of the next visible event"),
    _Figure("bytes", "log_bytes", "bytes of the event lines in the log"),
    _Figure("published", "events_published", "events stored since the start", is_counter=True),
    _Figure("duplicates", "events_duplicate", "repeated events that were not stored again", is_counter=True),
    _Figure("unconfirmed", "events_unconfirmed", "events accepted and not yet stored"),
)
_SUBSCRIPTION: Final = (
    _Figure("durable", "subscription_durable", "1 if it outlives its connections"),
    _Figure("consumers", "subscription_consumers", "connections that share it"),
    _Figure("pending", "events_pending", "events that wait, those in a pause included"),
    _Figure("delayed", "events_delayed", "of these, those in a pause after a failed try"),
    _Figure("in_flight", "events_in_flight", "events delivered and not settled"),
    _Figure("dead", "events_dead", "events given up on and not redriven"),
    _Figure("settled", "events_settled", "events settled since the start", is_counter=True),
    _Figure("redelivered", "events_redelivered", "deliveries that were not the first of their event", is_counter=True),
    _Figure("overtaken", "events_overtaken", "unsettled events that retention took away", is_counter=True),
)
_POLICY: Final = (
    _Figure("timeout_ms", "subscription_timeout_seconds", "time that a delivery has for its ack", scale=0.001),
    _Figure("tries", "subscription_tries", "failed tries that make a dead letter"),
    _Figure("backoff_ms", "subscription_backoff_seconds", "pause after the first failed try", scale=0.001),
    _Figure("qos", "subscription_qos", "2 if its events may be settled by the exactly-once handshake"),
    _Figure("max_wait_ms", "subscription_max_wait_seconds", "age from which an event goes first", scale=0.001),
)
_FAILED: Final = "failed_"


class BrokerCollector(Collector):
    """Collects what `read` gives; where it gives nothing, since the broker is ending, there are no metrics."""

    def __init__(self, read: Callable[[], Figures | None]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance: the registry would ask for the figures to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this moment."""
        found = self._read()
        if found is None:
            return
        stats, topics = found.stats, found.stats["topics"]
        subscriptions: _Rows = {
            (topic, name): figures
            for topic, report in topics.items()
            for name, figures in report["subscriptions"].items()
        }
        yield from _families(_BROKER, (), {(): stats})
        yield from _families([figure for figure in _EVENT_SOURCE if figure.member in stats], (), {(): stats})
        yield from _families(_other_counts(stats), (), {(): stats})
        handshakes: _Rows = {(state,): {"open": count} for state, count in stats["handshakes"].items()}
        yield from _families(_HANDSHAKES, ("state",), handshakes)
        yield _counter("failed_tries", "failed tries by cause", "cause", _failed_tries(stats))
        yield _counter("connection_ends", "ended connections by reason", "reason", found.ends)
        yield from _families(_TOPIC, ("topic",), {(name,): report for name, report in topics.items()})
        yield from _families(_SUBSCRIPTION, ("topic", "subscription"), subscriptions)
        policies: _Rows = {labels: figures["policy"] for labels, figures in subscriptions.items()}
        yield from _families(_POLICY, ("topic", "subscription"), policies)


def figures(server: Server) -> Figures:
    """Read the figures; to be called on the event loop."""
    broker = server.broker
    stats = reports.stats(broker.topics.values(), len(broker.sessions), broker.counts, broker.handshakes.report())
    return Figures(stats, {end.name.lower(): count for end, count in server.ends.items()})


@asynccontextmanager
async def watch(server: Server) -> AsyncIterator[None]:
    """Have the process's metrics tell of `server` until the end of the block."""
    async with BlockingPortal() as portal:

        def read() -> Figures | None:
            try:
                return portal.call(figures, server)
            except (RuntimeError, CancelledError):
                # A scrape that began before the end of the block and asks behind it.
                return None

        collector = BrokerCollector(read)
        REGISTRY.register(collector)
        try:
            yield
        finally:
            REGISTRY.unregister(collector)


def _families(table: Iterable[_Figure], labels: tuple[str, ...], rows: _Rows) -> Iterator[Metric]:
    """Yield a metric for each figure, with a sample for each row."""
    for figure in table:
        kind = CounterMetricFamily if figure.is_counter else GaugeMetricFamily
        family = kind(f"tweetwire_broker_{figure.name}", figure.text, labels=labels)
        for values, row in rows.items():
            family.add_metric(values, row[figure.member] * figure.scale)
        yield family


def _other_counts(stats: Mapping[str, Any]) -> list[_Figure]:
    """Return the counters that the table does not name, under the names that ``stats`` has for them."""
    known = {figure.member for figure in (*_BROKER, *_EVENT_SOURCE)}
    return [
        _Figure(member, member, f"the counter {member} of stats", is_counter=True)
        for member, value in stats.items()
        if isinstance(value, int) and member not in known and not member.startswith(_FAILED)
    ]


def _failed_tries(stats: Mapping[str, Any]) -> dict[str, int]:
    return {name.removeprefix(_FAILED): count for name, count in stats.items() if name.startswith(_FAILED)}


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"tweetwire_broker_{name}", text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
