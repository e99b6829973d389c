"""The rows H1 and H2: publishing and idle event streams through the HTTP gateway."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bench import http_gateway, wire
from bench.rounds import Rounds
from bench.row import BenchRow
from bench.settings import BenchSettings

__all__ = ["HTTP_ROWS"]

Measure = Callable[[BenchSettings, Rounds], Iterable[BenchRow]]


def _h1(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("H1", lambda: (http_gateway.publish_batches(settings), wire.publish_confirmed(settings)))
    rates = [rate for rate, _ in found]
    lines = statistics.median(rate for _, rate in found)
    what = f"POST of {http_gateway.BATCH:,} events, {http_gateway.WRITERS} connections"
    yield BenchRow(name="H1", what=what, unit="/s", figures=rates, beside=f"B1 of the same run: {lines:,.0f} /s")
    share = [100 * rate / alone for rate, alone in found]
    yield BenchRow(name="H1", what="the same, relative to B1", unit="%", figures=share, goal=50)


def _h2(_: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("H2", http_gateway.idle_streams)
    what = f"{http_gateway.STREAMS:,} idle event streams: memory above an idle broker"
    yield BenchRow(name="H2", what=what, unit="MB", figures=[run.memory / 1e6 for run in found], goal=400)
    yield BenchRow(name="H2", what="one event to all of them", unit="ms", figures=[1000 * run.seconds for run in found])


HTTP_ROWS: Final[dict[str, Measure]] = {"H1": _h1, "H2": _h2}
