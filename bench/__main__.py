"""``python -m bench``: measure, and print one table."""

import shutil
import statistics
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_settings import CliApp
from rich.console import Console

from bench import (
    backlog,
    ceilings,
    changes,
    clients,
    demo_start,
    event_source,
    fan_out,
    idle,
    ingest,
    latency,
    spark_jobs,
    wire,
)
from bench.peers import PEERS, Peer
from bench.peers.redis_streams import xadds_per_second
from bench.settings import BenchSettings
from bench.table import Row, measure, show, store

LONG_ROUNDS: Final = 3
Figure = TypeVar("Figure")

tell: Callable[[str], None] = partial(Console(stderr=True, highlight=False).print, style="dim")


def _rate(
    name: str, what: str, goal: float, run: Callable[[BenchSettings], float], settings: BenchSettings
) -> list[Row]:
    return [Row(name, what, "/s", measure(partial(run, settings), settings.rounds, tell, name), goal)]


def _b1(settings: BenchSettings) -> list[Row]:
    disk = ceilings.synced_bytes_per_second(settings.events * settings.size)
    (row,) = _rate("B1", "publish, confirmed synced, one connection", 400_000, wire.publish_confirmed, settings)
    row.beside = f"{row.median * settings.size / disk:.0%} of 1 MiB write+fdatasync ({disk / 1e6:,.0f} MB/s; goal 40 %)"
    if shutil.which("redis-benchmark"):
        row.beside += (
            f"; redis-benchmark XADD, always synced {xadds_per_second(settings.events // 5, settings.size):,.0f} /s"
        )
    return [row]


def _b3(settings: BenchSettings) -> list[Row]:
    (row,) = _rate("B3", "the same through broker.Client at both ends", 120_000, clients.through_clients, settings)
    rows = [row, *(_peer(peer, settings) for peer in PEERS if peer.is_installed)]
    missing = [peer.name for peer in PEERS if not peer.is_installed]
    if missing:
        tell(f"B3: not installed, so not measured: {', '.join(missing)} (make bench-install, on Debian)")
    if rows[1:]:
        best = max(rows[1:], key=lambda peer: peer.median)
        row.beside = f"{row.median / best.median:.1f} times the best peer below (goal 4)"
    return rows


def _peer(peer: Peer, settings: BenchSettings) -> Row:
    figures = _runs(peer.name, partial(peer.rate, max(1000, settings.events // 25), settings.size), settings)
    return Row("B3", peer.name, "/s", figures, None, f"confirms when it is {peer.promise}")


def _b5(settings: BenchSettings) -> list[Row]:
    ceiling = ceilings.ping_pongs_per_second()
    (row,) = _rate("B5", "stop and wait: prefetch 1, backlog ready", 10_000, latency.stop_and_wait, settings)
    row.beside = f"{row.median / ceiling:.0%} of a bare ping-pong of two sockets ({ceiling:,.0f} /s)"
    return [row]


def _b6(settings: BenchSettings) -> list[Row]:
    bare = latency.fdatasync_latencies(settings.size)
    runs = []
    for number in range(1, settings.rounds + 1):
        runs.append(latency.open_loop(settings))
        tell(f"B6 B7 run {number}/{settings.rounds}: {runs[-1]}")
    rows = []
    for index, (name, what, p50, p99) in enumerate([("B6", "confirmed", 1.0, 10.0), ("B7", "delivered", 1.5, 12.0)]):
        beside = f"bare fdatasync p50 {bare.p50:.2f} ms, p99 {bare.p99:.2f} ms" if name == "B6" else ""
        rows.append(
            Row(name, f"publish -> {what} at 5,000/s, p50", "ms", [run[index].p50 for run in runs], p50, beside)
        )
        rows.append(Row(name, f"publish -> {what} at 5,000/s, p99", "ms", [run[index].p99 for run in runs], p99))
    return rows


def _b8(settings: BenchSettings) -> list[Row]:
    run = backlog.long_log(settings)
    what = f"{settings.backlog / 1e6:g} M events, {backlog.SUBSCRIPTIONS} durable subscriptions"
    return [
        Row("B8", f"{what}: resident memory", "MB", [run.memory / 1e6], 300),
        Row("B8", "the same after kill -9 and a start", "MB", [run.memory_after_start / 1e6], 300),
        Row("B8", "ready after kill -9", "s", [run.start_s], 3),
    ]


def _b9(settings: BenchSettings) -> list[Row]:
    runs = [idle.idle_subscribers() for _ in range(min(settings.rounds, 3))]
    tell(f"B9: {runs}")
    return [
        Row("B9", "5,000 idle subscribers: resident memory", "MB", [run.memory / 1e6 for run in runs], 150),
        Row("B9", "one event to all of them", "ms", [1000 * run.seconds for run in runs], 500),
    ]


def _c1(settings: BenchSettings) -> list[Row]:
    runs = _runs("C1", partial(changes.change_backlog, settings), settings)
    share = [run.ours / run.bare for run in runs]
    bare, ours = _median(run.bare for run in runs), _median(run.ours for run in runs)
    beside = f"a bare pymongo loop {bare:,.0f} /s, ours {ours:,.0f} /s"
    return [Row("C1", "change stream -> durable topic, of a bare loop", "%", [100 * s for s in share], 70, beside)]


def _c2(settings: BenchSettings) -> list[Row]:
    runs = _runs("C2", partial(changes.insert_to_event, settings), settings)
    return [
        Row("C2", "insert acknowledged -> event at a subscriber, 500/s, p50", "ms", [run.p50 for run in runs], 6),
        Row("C2", "the same, p99", "ms", [run.p99 for run in runs], 30),
    ]


def _i1(settings: BenchSettings) -> list[Row]:
    runs = _runs("I1", partial(ingest.ingest, settings), settings)
    beside = (
        f"{_median(run.stored / run.scored for run in runs):.0%} of scoring alone"
        f" ({_median(run.scored for run in runs):,.0f} /s; goal 60 %);"
        f" insert_many alone {_median(run.inserted for run in runs):,.0f} /s"
    )
    return [Row("I1", "SSE -> scored -> MongoDB, 3 KB tweets", "/s", [run.stored for run in runs], 6000, beside)]


def _s1(settings: BenchSettings) -> list[Row]:
    runs = _runs("S1", partial(spark_jobs.backlog_statistics, settings), settings)
    beside = f"Spark's rate source through the same query {_median(run.rate_source for run in runs):,.0f} /s"
    return [Row("S1", "topic -> Spark -> statistics, backlog", "/s", [run.topic for run in runs], 120_000, beside)]


def _s2(settings: BenchSettings) -> list[Row]:
    runs = _runs("S2", spark_jobs.window_latency, settings)
    beside = f"an empty query's trigger {_median(run.empty_trigger for run in runs):.2f} s"
    return [Row("S2", "window's end -> its event in the topic", "s", [run.window for run in runs], 1.5, beside)]


def _d1(settings: BenchSettings) -> list[Row]:
    return [Row("D1", "make demo -> first statistics", "s", _runs("D1", demo_start.first_statistics, settings), 30)]


def _runs(name: str, run: Callable[[], Figure], settings: BenchSettings) -> list[Figure]:
    """Run what takes long no more than three times, telling of each."""
    found = []
    rounds = min(settings.rounds, LONG_ROUNDS)
    for number in range(1, rounds + 1):
        found.append(run())
        tell(f"{name} run {number}/{rounds}: {found[-1]}")
    return found


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


ROWS: dict[str, Callable[[BenchSettings], list[Row]]] = {
    "B1": _b1,
    "B2": partial(_rate, "B2", "publish, priority, deliver, ack, one subscriber", 300_000, wire.publish_deliver_ack),
    "B3": _b3,
    "B4": partial(_rate, "B4", "deliveries to 100 subscribers", 1_000_000, fan_out.deliveries_per_second),
    "B5": _b5,
    "B6": _b6,
    "B8": _b8,
    "B9": _b9,
    "G1": partial(_rate, "G1", "event source, 1,000 clients, out of order", 50_000, event_source.events_per_second),
    "C1": _c1,
    "C2": _c2,
    "I1": _i1,
    "S1": _s1,
    "S2": _s2,
    "D1": _d1,
}


def main() -> int:
    """Measure the rows that are wanted; status 2 for a wrong setting."""
    try:
        settings = CliApp.run(BenchSettings)
    except ValidationError as error:
        tell(str(error))
        return 2
    unknown = set(settings.only) - set(ROWS)
    if unknown:
        tell(f"there is no row {', '.join(sorted(unknown))}; the rows are {', '.join(ROWS)}")
        return 2
    rows = [row for name in settings.only or ROWS for row in ROWS[name](settings)]
    show(rows)
    tell(f"figures written to {store(rows, settings.results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
