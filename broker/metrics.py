"""The broker's metrics for Prometheus: the figures of ``stats``, with names that follow the conventions of Prometheus.

A scrape runs in a separate thread. The thread asks the event loop to read the figures between two decisions of the core. So the
figures are consistent with each other without a lock.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from anyio.from_thread import BlockingPortal
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from broker.core import EVERYTHING
from broker.core.steps import Interrupt
from broker.server import Server
from tweetwire.runtime.collectors import registered

__all__ = ["BrokerCollector", "Figures", "figures", "watch"]


_Rows: TypeAlias = dict[tuple[str, ...], Mapping[str, Any]]
"""One row of figures for each combination of label values."""


class Figures(NamedTuple):
    """The figures of one moment: the answer to ``stats`` with access to everything, and the ended connections by reason."""

    stats: dict[str, Any]
    ends: dict[str, int]


class _Figure(NamedTuple):
    """A member of ``stats`` as a metric. `scale` converts its unit to the base unit of Prometheus."""

    member: str
    name: str
    text: str
    is_counter: bool = False
    scale: float = 1.0


_BROKER: Final = (
    _Figure("connections", "connections", "open connections"),
    _Figure("commands", "commands", "commands, each publish of a run counted", is_counter=True),
    _Figure("refused", "refused_commands", "commands that were refused", is_counter=True),
    _Figure("rejected_lines", "rejected_lines", "refused lines that were sent as events", is_counter=True),
    _Figure("delivered", "deliveries", "events delivered to connections, redeliveries included", is_counter=True),
    _Figure("acked", "acked_events", "events settled by an ack", is_counter=True),
    _Figure("requests", "requests", "requests that were accepted", is_counter=True),
    _Figure("replied", "replied_requests", "requests whose reply was sent to the requester", is_counter=True),
    _Figure("unreplied", "unreplied_requests", "requests that got no reply in time", is_counter=True),
    _Figure(
        "confirmed_replicated", "confirmed_replicated", "events that were confirmed as replicated", is_counter=True
    ),
    _Figure(
        "confirmed_late",
        "confirmed_late",
        "events that waited for marks, and were confirmed with a lesser promise",
        is_counter=True,
    ),
    _Figure("expired", "expired_events", "events settled without a delivery, since they had expired", is_counter=True),
    _Figure("damaged", "damaged_events", "damaged events found while reading the logs", is_counter=True),
)
_EVENT_SOURCE: Final = (
    _Figure("event_source_clients", "event_source_clients", "clients of the event source that are connected"),
    _Figure("event_source_sources", "event_source_sources", "event sources that are served, 1 or 0"),
    _Figure("event_source_held", "event_source_held_events", "events that wait for an event with a lower sequence"),
)
"""The metrics of the event source gateway. They exist only while the gateway is enabled."""
_HTTP: Final = (
    _Figure("http_connections", "http_connections", "open connections of the HTTP gateway"),
    _Figure("http_holders", "http_holders", "subscriptions that requests of the HTTP gateway use"),
)
"""The metrics of the HTTP gateway. They exist only while the gateway is enabled."""
_HANDSHAKES: Final = (_Figure("open", "handshakes_open", "exactly-once handshakes that are not finished"),)
_PATTERN: Final = (
    _Figure("topics", "pattern_topics", "topics that the pattern subscription has a subscription on"),
    _Figure("consumers", "pattern_consumers", "connections that share the pattern subscription"),
    _Figure("in_flight", "pattern_events_in_flight", "events of all its topics that are delivered and not settled"),
)
_TOPIC: Final = (
    _Figure("earliest", "log_earliest_offset", "lowest offset that can be read"),
    _Figure("next", "log_next_offset", "offset of the next visible event"),
    _Figure("bytes", "log_bytes", "bytes of the event lines in the log"),
    _Figure("published", "events_published", "events stored since the start", is_counter=True),
    _Figure("duplicates", "events_duplicate", "duplicate events that were not stored again", is_counter=True),
    _Figure("producers", "producers", "producers whose last sequence or checkpoint is stored"),
    _Figure("unconfirmed", "events_unconfirmed", "events that were accepted and are not stored yet"),
    _Figure("scheduled", "events_scheduled", "events that wait for their due times"),
)
_SUBSCRIPTION: Final = (
    _Figure("durable", "subscription_durable", "1 if the subscription is durable, so that it outlives its connections"),
    _Figure("paused", "subscription_paused", "1 while the subscription is paused"),
    _Figure("consumers", "subscription_consumers", "connections that share the subscription"),
    _Figure("pending", "events_pending", "events that wait for delivery, delayed events included"),
    _Figure(
        "delayed",
        "events_delayed",
        "pending events that wait for the backoff after a failed try, or for their due time",
    ),
    _Figure("parked", "events_parked", "pending events of an ordered subscription that were read and wait for others"),
    _Figure("in_flight", "events_in_flight", "events that are delivered and not settled"),
    _Figure("dead", "events_dead", "dead events that were not redriven"),
    _Figure("settled", "events_settled", "events settled since the start", is_counter=True),
    _Figure("redelivered", "events_redelivered", "deliveries that were not the first of their event", is_counter=True),
    _Figure("expired", "events_expired", "events settled without a delivery, since they had expired", is_counter=True),
    _Figure("overtaken", "events_overtaken", "unsettled events that retention or a purge removed", is_counter=True),
)
_MARK: Final = (
    _Figure("offset", "mark_offset", "offset below which another system has every event"),
    _Figure("lag", "mark_lag_events", "events of the log at or above the mark"),
    _Figure("excepted", "mark_excepted_events", "events below the mark that the other system does not have"),
    _Figure("overtaken", "mark_overtaken_events", "events above the mark that were removed", is_counter=True),
)
_POLICY: Final = (
    _Figure(
        "timeout_ms", "subscription_timeout_seconds", "time after which a delivery without an ack fails", scale=0.001
    ),
    _Figure("tries", "subscription_tries", "failed tries after which an event becomes a dead letter"),
    _Figure("backoff_ms", "subscription_backoff_seconds", "backoff after the first failed try", scale=0.001),
    _Figure("qos", "subscription_qos", "2 if events may be settled by the exactly-once handshake"),
    _Figure(
        "max_wait_ms",
        "subscription_max_wait_seconds",
        "waiting time after which an event goes first",
        scale=0.001,
    ),
)
_FAILED: Final = "failed_"
_NOW: Final = "now_ms"
"""The broker's time, which is not a figure."""


class BrokerCollector(Collector):
    """Collects the figures that `read` returns. If it returns None, since the broker is ending, there are no metrics."""

    def __init__(self, read: Callable[[], Figures | None]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Return no metrics, since the registry would otherwise call `collect` to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
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
        gateways = [figure for figure in (*_EVENT_SOURCE, *_HTTP) if figure.member in stats]
        yield from _families(gateways, (), {(): stats})
        yield from _families(_other_counts(stats), (), {(): stats})
        handshakes: _Rows = {(state,): {"open": count} for state, count in stats["handshakes"].items()}
        yield from _families(_HANDSHAKES, ("state",), handshakes)
        yield _counter("failed_tries", "failed tries by cause", "cause", _failed_tries(stats))
        yield _counter("connection_ends", "ended connections by reason", "reason", found.ends)
        yield from _families(_TOPIC, ("topic",), {(name,): report for name, report in topics.items()})
        yield from _families(_SUBSCRIPTION, ("topic", "subscription"), subscriptions)
        marks: _Rows = {
            (topic, name): figures for topic, report in topics.items() for name, figures in report["marks"].items()
        }
        yield from _families(_MARK, ("topic", "mark"), marks)
        patterns: _Rows = {(one["pattern"], one["name"]): one for one in stats["patterns"]}
        yield from _families(_PATTERN, ("pattern", "subscription"), patterns)
        policies: _Rows = {labels: figures["policy"] for labels, figures in subscriptions.items()}
        yield from _families(_POLICY, ("topic", "subscription"), policies)


async def figures(server: Server) -> tuple[bytes, dict[str, int]]:
    """Return the answer to ``stats`` with access to everything, and the ended connections by reason."""
    answer = await server.runner.jobs.finish(server.broker.stats(EVERYTHING, server.runner.now_ms()), Interrupt())
    return answer.split(b" ", 2)[2], {end.name.lower(): count for end, count in server.ends.items()}


@asynccontextmanager
async def watch(server: Server) -> AsyncIterator[None]:
    """Add the metrics of `server` to those of the process until the end of the block."""
    async with BlockingPortal() as portal:

        def read() -> Figures | None:
            try:
                stats, ends = portal.call(figures, server)
            except (RuntimeError, CancelledError):
                # The block of `watch` ended during this scrape, so the portal is closed.
                return None
            return Figures(msgspec.json.decode(stats), ends)

        with registered(BrokerCollector(read)):
            yield


def _families(table: Iterable[_Figure], labels: tuple[str, ...], rows: _Rows) -> Iterator[Metric]:
    """Yield a metric for each figure in `table`, with a sample for each row."""
    for figure in table:
        kind = CounterMetricFamily if figure.is_counter else GaugeMetricFamily
        family = kind(f"tweetwire_broker_{figure.name}", figure.text, labels=labels)
        for values, row in rows.items():
            family.add_metric(values, row[figure.member] * figure.scale)
        yield family


def _other_counts(stats: Mapping[str, Any]) -> list[_Figure]:
    """Return the counters that the tables do not list, with the names that they have in ``stats``."""
    known = {figure.member for figure in (*_BROKER, *_EVENT_SOURCE, *_HTTP)} | {_NOW}
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
