"""The reports of a run: one each second and a final one, for people or as JSON lines."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.live import Live
from rich.table import Table

from subscriber.stress.account import Second
from subscriber.stress.faults import Faults
from subscriber.stress.latency import LatencyHistogram
from subscriber.stress.ledger import Ledger, Verdict
from subscriber.stress.publishing import Sending
from tweetwire.runtime.program import logger

__all__ = [
    "FaultReport",
    "Latency",
    "LoadReport",
    "SecondReport",
    "StressReport",
    "TopicReport",
    "report_table",
    "reporter",
]

_WIDTH = 120
"""The width of the table in columns if the output is not a terminal."""


class Latency(Struct, frozen=True):
    """Milliseconds from when an event was due, or from the broker's timestamp, to its arrival; None without events."""

    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, histogram: LatencyHistogram) -> "Latency":
        """Read the percentiles of a histogram."""
        p50, p95, p99 = (_rounded(histogram.percentile(share)) for share in (0.5, 0.95, 0.99))
        return cls(p50, p95, p99, _rounded(histogram.max_ms) if histogram.count else None)


class TopicReport(Struct, frozen=True, kw_only=True):
    """The figures of one subscription. Figures that can only be judged at the end are None before the end."""

    topic: str
    subscription: str
    received: int
    acked: int
    settled: int
    redelivered: int
    doubled: int
    lost: int | None = None
    pending: int | None = None
    dead: int | None = None
    missing: list[tuple[int, int]] = []

    @classmethod
    def of(cls, ledger: Ledger, verdict: Verdict | None = None) -> "TopicReport":
        """Make the report of a ledger. A surplus counts as doubled, since an earlier run had settled these events."""
        return cls(
            topic=ledger.topic,
            subscription=ledger.subscription,
            received=len(ledger.received),
            acked=len(ledger.acked),
            settled=len(ledger.settled),
            redelivered=ledger.redelivered,
            doubled=ledger.doubled + (verdict.surplus if verdict else 0),
            lost=verdict.lost if verdict else None,
            pending=verdict.pending if verdict else None,
            dead=verdict.dead if verdict else None,
            missing=verdict.missing if verdict else [],
        )


class LoadReport(Struct, frozen=True, kw_only=True):
    """The publishers' result: events due by the plan, sent and confirmed; `late_ms` is the largest delay of sending.

    `confirm_ms` is measured from when an event was due. `by_producer` has the confirmed events by topic and producer.
    """

    rate: float
    due: int
    sent: int
    confirmed: int
    seconds: float
    late_ms: float
    confirm_ms: Latency
    by_producer: dict[str, dict[str, int]]


class FaultReport(Struct, frozen=True):
    """The number of deliberate faults of each kind."""

    nacked: int
    stalled: int
    vanished: int

    @classmethod
    def of(cls, all_faults: Sequence[Faults]) -> "FaultReport":
        """Add up the faults of all connections."""
        return cls(
            sum(faults.nacked for faults in all_faults),
            sum(faults.stalled for faults in all_faults),
            sum(faults.vanished for faults in all_faults),
        )


class SecondReport(Struct, frozen=True, kw_only=True):
    """One second of a run, for plots. The latencies, in ms, are those of the events that arrived in it."""

    second: int
    due: int
    sent: int
    confirmed: int
    received: int
    p50: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, number: int, second: Second, sending: Sending) -> "SecondReport":
        """Combine the figures of the events that arrived in a second and of those that were sent."""
        latency = Latency.of(second.latency)
        return cls(
            second=number,
            due=sending.due,
            sent=sending.sent,
            confirmed=sending.confirmed,
            received=second.received,
            p50=latency.p50,
            p99=latency.p99,
            max=latency.max,
        )


class StressReport(Struct, frozen=True, kw_only=True):
    """The figures of a run: of its last second (``second``) or of the whole run (``final``).

    `events` and `per_second` count deliveries, redeliveries included. `disordered` counts events that arrived after a later
    one of their priority. `twice` counts events that were published once but are in the topic twice. `not_arrived` counts
    events that were confirmed but did not arrive.
    """

    report: Literal["second", "final"]
    seconds: float
    events: int
    per_second: float
    latency_ms: Latency
    topics: Sequence[TopicReport]
    disordered: int = 0
    twice: int = 0
    not_arrived: int | None = None
    load: LoadReport | None = None
    faults: FaultReport | None = None
    series: list[SecondReport] = []

    @property
    def redelivered(self) -> int:
        return sum(topic.redelivered for topic in self.topics)

    @property
    def doubled(self) -> int:
        return sum(topic.doubled for topic in self.topics)

    @property
    def lost(self) -> int:
        return sum(topic.lost or 0 for topic in self.topics)

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost, doubled or out of order, and all events sent were confirmed."""
        is_confirmed = self.load is None or self.load.confirmed == self.load.sent
        wrong = (self.lost, self.doubled, self.disordered, self.twice, self.not_arrived or 0)
        return not any(wrong) and is_confirmed


Show = Callable[[StressReport], None]


@contextmanager
def reporter(form: Literal["text", "json"], console: Console | None = None) -> Iterator[Show]:
    """Yield the function that shows reports: as JSON lines, as a live table on a terminal, or else as log lines."""
    console = console or Console()
    if not console.is_terminal:
        console.width = _WIDTH
    if form == "json":
        yield _show_json
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda report: _show_live(report, live)
    else:
        yield lambda report: _show_line(report, console)


def report_table(report: StressReport) -> Table:
    """Return a report as a table with a row for each subscription."""
    table = Table(title=_headline(report), title_justify="left", expand=False)
    table.add_column("topic")
    table.add_column("subscription")
    for name in ("received", "acked", "settled", "redelivered", "doubled", "lost", "pending", "dead"):
        table.add_column(name, justify="right")
    for topic in report.topics:
        figures = (
            *(topic.received, topic.acked, topic.settled),
            *(topic.redelivered, topic.doubled, topic.lost, topic.pending, topic.dead),
        )
        table.add_row(topic.topic, topic.subscription, *("" if figure is None else f"{figure:,}" for figure in figures))
    return table


def _show_live(report: StressReport, live: Live) -> None:
    live.update(report_table(report), refresh=True)
    if report.report == "final":
        _print_load(report, live.console)


def _print_load(report: StressReport, console: Console) -> None:
    """Print the figures that the table does not contain."""
    console.print(f"{report.disordered:,} out of order, {report.twice:,} stored twice", highlight=False)
    if report.load is not None:
        load, confirm = report.load, report.load.confirm_ms
        console.print(
            f"offered {load.rate:,.0f}/s: {load.due:,} due, {load.sent:,} sent, {load.confirmed:,} confirmed;"
            f" sending was {load.late_ms:g} ms late at the worst;"
            f" due -> confirmed p50 {confirm.p50} p99 {confirm.p99} ms; confirmed and not arrived: {report.not_arrived}",
            highlight=False,
        )
    if report.faults is not None and any(msgspec.structs.astuple(report.faults)):
        faults = report.faults
        console.print(
            f"on purpose: {faults.nacked:,} refused, {faults.stalled:,} not answered, {faults.vanished:,} connections dropped",
            highlight=False,
        )


def _show_json(report: StressReport) -> None:
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()


def _show_line(report: StressReport, console: Console) -> None:
    if report.report == "final":
        console.print(report_table(report))
        _print_load(report, console)
        return
    latency = report.latency_ms
    logger().info(
        _headline(report), p50_ms=latency.p50, p95_ms=latency.p95, p99_ms=latency.p99,
        redelivered=report.redelivered, doubled=report.doubled,
    )  # fmt: skip


def _headline(report: StressReport) -> str:
    latency = report.latency_ms
    took = "" if latency.p50 is None else f", latency p50 {latency.p50:g} p95 {latency.p95:g} p99 {latency.p99:g} ms"
    whole = f" in {report.seconds:g} s" if report.report == "final" else ""
    return f"{report.events:,} events{whole}, {report.per_second:,.0f}/s{took}"


def _rounded(latency_ms: float | None) -> float | None:
    return None if latency_ms is None else round(latency_ms, 1)
