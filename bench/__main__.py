"""``python -m bench``: measure, and print one table."""

import sys
from collections.abc import Callable
from functools import partial

from pydantic import ValidationError
from pydantic_settings import CliApp
from rich.console import Console

from bench import ceilings, clients, fan_out, idle, latency, wire
from bench.settings import BenchSettings
from bench.table import Row, measure, show, store

tell: Callable[[str], None] = partial(Console(stderr=True, highlight=False).print, style="dim")


def _rate(
    name: str, what: str, goal: float, run: Callable[[BenchSettings], float], settings: BenchSettings
) -> list[Row]:
    return [Row(name, what, "/s", measure(partial(run, settings), settings.rounds, tell, name), goal)]


def _b1(settings: BenchSettings) -> list[Row]:
    disk = ceilings.synced_bytes_per_second(settings.events * settings.size)
    (row,) = _rate("B1", "publish, confirmed synced, one connection", 400_000, wire.publish_confirmed, settings)
    row.beside = f"{row.median * settings.size / disk:.0%} of 1 MiB write+fdatasync ({disk / 1e6:,.0f} MB/s; goal 40 %)"
    return [row]


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


def _b9(settings: BenchSettings) -> list[Row]:
    runs = [idle.idle_subscribers() for _ in range(min(settings.rounds, 3))]
    tell(f"B9: {runs}")
    return [
        Row("B9", "5,000 idle subscribers: resident memory", "MB", [run.memory / 1e6 for run in runs], 150),
        Row("B9", "one event to all of them", "ms", [1000 * run.seconds for run in runs], 500),
    ]


ROWS: dict[str, Callable[[BenchSettings], list[Row]]] = {
    "B1": _b1,
    "B2": partial(_rate, "B2", "publish, priority, deliver, ack, one subscriber", 300_000, wire.publish_deliver_ack),
    "B3": partial(_rate, "B3", "the same through broker.Client at both ends", 120_000, clients.through_clients),
    "B4": partial(_rate, "B4", "deliveries to 100 subscribers", 1_000_000, fan_out.deliveries_per_second),
    "B5": _b5,
    "B6": _b6,
    "B9": _b9,
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
