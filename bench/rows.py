"""The rows of the benchmark's table: how each is measured, its goal, and the figures that it is compared with."""

import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from bench import (
    backlog,
    ceilings,
    changes,
    clients,
    dashboards,
    demo_start,
    event_source,
    fan_out,
    idle,
    ingest,
    latency,
    spark_jobs,
    wire,
)
from bench.bridge_rows import BRIDGE_ROWS
from bench.http_rows import HTTP_ROWS
from bench.latency import Latencies
from bench.peers import PEERS, PeerBroker
from bench.peers.redis_streams import xadds_per_second
from bench.rounds import Rounds
from bench.row import BenchRow
from bench.settings import BenchSettings

__all__ = ["GROWTHS", "ROWS", "Growing"]

Measure = Callable[[BenchSettings, Rounds], Iterable[BenchRow]]
Rate = Callable[[BenchSettings], float]


class Growing(NamedTuple):
    """A rate (events/s) that is measured with growing numbers of events. A slow one gets only a `share` of the events."""

    what: str
    rate: Rate
    share: float = 1.0


def _rate(name: str, what: str, goal: float, run: Rate) -> Measure:
    """Return the measurement of a row that is a rate with a goal and no comparison."""

    def measure(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
        yield BenchRow(name=name, what=what, unit="/s", figures=rounds(name, partial(run, settings)), goal=goal)

    return measure


def _b1(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    def run() -> tuple[float, float]:
        disk = ceilings.synced_bytes_per_second(settings.events * settings.size)
        return wire.publish_confirmed(settings), disk

    found = rounds("B1", run)
    peer = "redis-benchmark is not installed"
    if shutil.which("redis-benchmark"):
        xadds = rounds("B1 redis-benchmark", lambda: xadds_per_second(settings.events // 5, settings.size))
        peer = f"redis-benchmark XADD, appendfsync always: {statistics.median(xadds):,.0f} /s"
    rates = [rate for rate, _ in found]
    yield BenchRow(
        name="B1", what="publish, confirmed synced, one connection", unit="/s", figures=rates, goal=400_000, beside=peer
    )
    disk = statistics.median(disk for _, disk in found)
    yield BenchRow(
        name="B1",
        what="the same, of the bytes/s of 1 MiB write+fdatasync",
        unit="%",
        figures=[100 * rate * settings.size / disk for rate, disk in found],
        goal=40,
        beside=f"the disk: {disk / 1e6:,.0f} MB/s",
    )


def _b3(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    ours = rounds("B3", partial(clients.through_clients, settings))
    peers = [_peer(peer, settings, rounds) for peer in PEERS]
    yield BenchRow(
        name="B3",
        what="the same through tweetwire.Client at both ends",
        unit="/s",
        figures=ours,
        goal=120_000,
        beside="confirms when it is on the disk (fdatasync)",
    )
    best = max(peers, key=lambda peer: peer.median or 0.0)
    ratio = BenchRow(name="B3", what="the same, of the best peer below", unit="times", goal=4)
    if best.median:
        ratio.figures, ratio.beside = [rate / best.median for rate in ours], best.what
    else:
        ratio.reason = "no peer is installed"
    yield ratio
    yield from peers


def _peer(peer: PeerBroker, settings: BenchSettings, rounds: Rounds) -> BenchRow:
    row = BenchRow(name="B3", what=peer.name, unit="/s", beside=f"confirms when it is {peer.promise}")
    if peer.is_installed:
        row.figures = rounds(peer.name, partial(peer.rate, max(1000, settings.events // 25), settings.size))
    else:
        row.reason = f"{peer.program} is not installed (make bench-install, on Debian)"
    return row


def _b5(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("B5", lambda: (latency.stop_and_wait(settings), ceilings.ping_pongs_per_second()))
    bare = statistics.median(bare for _, bare in found)
    yield BenchRow(
        name="B5",
        what="stop and wait: prefetch 1, backlog ready",
        unit="/s",
        figures=[rate for rate, _ in found],
        goal=10_000,
        beside=f"a bare ping-pong of two sockets: {bare:,.0f} /s",
    )


def _b6(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("B6 B7", lambda: (*latency.open_loop(settings), latency.fdatasync_latencies(settings.size)))
    at = f"at {latency.RATE:,}/s"
    yield from _percentiles("B6", f"publish -> confirmed {at}", [run[0] for run in found], 1.0, 10.0)
    yield from _percentiles("B6", "compared with a bare fdatasync of the same bytes", [run[2] for run in found])
    yield from _percentiles("B7", f"publish -> delivered {at}", [run[1] for run in found], 1.5, 12.0)


def _percentiles(
    name: str, what: str, found: list[Latencies], p50: float | None = None, p99: float | None = None
) -> Iterator[BenchRow]:
    for percentile, goal in (("p50", p50), ("p90", None), ("p99", p99), ("p99.9", None)):
        figures = [getattr(one, percentile.replace(".", "")) for one in found]
        yield BenchRow(name=name, what=f"{what}, {percentile}", unit="ms", figures=figures, goal=goal)


def _b8(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("B8", partial(backlog.long_log, settings))
    what = f"{settings.backlog / 1e6:g} M events, {backlog.SUBSCRIPTIONS} durable subscriptions: memory"
    after = [run.memory_after_start / 1e6 for run in found]
    yield BenchRow(name="B8", what=what, unit="MB", figures=[run.memory / 1e6 for run in found], goal=300)
    yield BenchRow(name="B8", what="the same after kill -9 and a start", unit="MB", figures=after, goal=300)
    yield BenchRow(name="B8", what="ready after kill -9", unit="s", figures=[run.start_s for run in found], goal=3)


def _b9(_: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("B9", idle.idle_subscribers)
    what = f"{idle.SUBSCRIBERS:,} idle subscribers: memory"
    yield BenchRow(name="B9", what=what, unit="MB", figures=[run.memory / 1e6 for run in found], goal=150)
    yield BenchRow(
        name="B9", what="one event to all of them", unit="ms", figures=[1000 * run.seconds for run in found], goal=500
    )


def _g1(settings: BenchSettings, rounds: Rounds) -> Iterable[BenchRow]:
    fewer = settings.with_share(0.2)
    measure = _rate("G1", "event source, 1,000 clients, out of order", 50_000, event_source.events_per_second)
    return measure(fewer, rounds)


def _c1(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("C1", partial(changes.change_backlog, settings))
    bare, ours = (statistics.median(rates) for rates in zip(*found, strict=True))
    yield BenchRow(
        name="C1",
        what="change stream -> durable topic, of a bare loop",
        unit="%",
        figures=[100 * run.ours / run.bare for run in found],
        goal=70,
        beside=f"a bare pymongo loop: {bare:,.0f} /s, ours: {ours:,.0f} /s",
    )


def _c2(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("C2", partial(changes.insert_to_event, settings))
    what = f"insert acknowledged -> event, {changes.INSERTS_PER_SECOND}/s"
    yield from _percentiles("C2", what, found, 6.0, 30.0)


def _i1(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("I1", partial(ingest.ingest, settings))
    stored, scored, inserted = ([run[at] for run in found] for at in range(3))
    yield BenchRow(
        name="I1",
        what="SSE -> scored -> MongoDB, 3 KB tweets",
        unit="/s",
        figures=stored,
        goal=6000,
        beside=f"insert_many alone: {statistics.median(inserted):,.0f} /s",
    )
    yield BenchRow(
        name="I1",
        what="the same, of vaderSentiment alone on as many cores",
        unit="%",
        figures=[100 * ours / alone for ours, alone in zip(stored, scored, strict=True)],
        goal=60,
        beside=f"vaderSentiment alone: {statistics.median(scored):,.0f} /s",
    )


def _s1(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("S1", partial(spark_jobs.backlog_statistics, settings))
    bare = statistics.median(run.rate_source for run in found)
    yield BenchRow(
        name="S1",
        what="topic -> Spark -> statistics, backlog",
        unit="/s",
        figures=[run.topic for run in found],
        goal=120_000,
        beside=f"Spark's rate source through the same query: {bare:,.0f} /s",
    )


def _s2(_: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("S2", spark_jobs.window_latency)
    bare = statistics.median(run.empty_trigger for run in found)
    yield BenchRow(
        name="S2",
        what="window's end -> its event in the topic, p50",
        unit="s",
        figures=[run.window for run in found],
        goal=1.5,
        beside=f"an empty query's trigger: {bare:.2f} s",
    )


def _d1(_: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("D1", demo_start.first_statistics)
    yield BenchRow(name="D1", what="make demo -> first statistics", unit="s", figures=found, goal=30)


def _d2(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("D2", partial(dashboards.looked_at, settings))
    alone, looked_at = ([getattr(run, name) for run in found] for name in ("alone", "looked_at"))
    yield BenchRow(
        name="D2",
        what=f"{dashboards.RATE:,} events/s offered: delivered less with {len(dashboards.PAGES)} dashboards open",
        unit="% less",
        figures=[run.fall for run in found],
        goal=5,
        beside=f"{_loads(alone)} without, {_loads(looked_at)} with",
    )


def _loads(loads: list[dashboards.Load]) -> str:
    delivered, processor_us = (statistics.median(values) for values in zip(*loads, strict=True))
    return f"{delivered:,.0f} /s at {processor_us:.1f} µs of the broker's processor time each"


ROWS: Final[dict[str, Measure]] = {
    "B1": _b1,
    "B2": _rate("B2", "publish, priority, deliver, ack, one subscriber", 300_000, wire.publish_deliver_ack),
    "B3": _b3,
    "B4": _rate("B4", "deliveries to 100 subscribers", 1_000_000, fan_out.deliveries_per_second),
    "B5": _b5,
    "B6": _b6,
    "B8": _b8,
    "B9": _b9,
    "G1": _g1,
    "C1": _c1,
    "C2": _c2,
    "I1": _i1,
    "S1": _s1,
    "S2": _s2,
    "D1": _d1,
    "D2": _d2,
    **BRIDGE_ROWS,
    **HTTP_ROWS,
}

GROWTHS: Final[dict[str, Growing]] = {
    "B1": Growing("publish, confirmed", wire.publish_confirmed),
    "B2": Growing("publish, deliver, ack", wire.publish_deliver_ack),
    "B3": Growing("the same through clients", clients.through_clients),
    "B4": Growing("one delivery of 100", fan_out.deliveries_per_second, 0.3),
    "B5": Growing("stop and wait", latency.stop_and_wait, 0.3),
    "C1": Growing("change to topic", lambda settings: changes.change_backlog(settings).ours, 0.3),
    "S1": Growing("topic to statistics", lambda settings: spark_jobs.backlog_statistics(settings).topic, 1 / 20),
}
