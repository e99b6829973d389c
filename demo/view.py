"""Show the running demo: a live view on a terminal, else a log line at intervals."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demo.check import CheckRow
from demo.observer import Observer
from demo.programs import ProgramState
from demo.supervisor import Supervisor
from demo.tally import CHANGES
from tweetwire.runtime.program import logger

__all__ = ["View", "check_table", "picture", "showing"]

_LINE_EVERY_S = 5.0
_WIDE = 110
"""The columns from which on the tables of programs and topics are side by side."""
_COLOURS = {ProgramState.READY: "green", ProgramState.RESTARTING: "bold red", ProgramState.STARTING: "yellow"}


class View:
    """Shows the stack; `say` sets the status line."""

    def __init__(self, supervisor: Supervisor, live: Live | None) -> None:
        self._supervisor = supervisor
        self._live = live
        self._words = "starting"
        self._observer: Observer | None = None
        self._line_at = 0.0

    def say(self, words: str) -> None:
        """Set the status line."""
        if words != self._words and self._live is None:
            logger().info(words)
        self._words = words
        self.show(self._observer)

    def show(self, observer: Observer | None) -> None:
        """Show the current state."""
        self._observer = observer
        if self._live is not None:
            width = self._live.console.width
            self._live.update(picture(self._words, self._supervisor, observer, width), refresh=True)
        elif observer is not None and observer.rates and time.monotonic() - self._line_at >= _LINE_EVERY_S:
            self._line_at = time.monotonic()
            self._log_line(observer)

    def _log_line(self, observer: Observer) -> None:
        rates = {topic: f"{rate.next} ({rate.per_second:.0f}/s)" for topic, rate in observer.rates.items()}
        away = [name for name, child in self._supervisor.children.items() if not child.is_ready]
        logger().info(self._words, **rates, latency=_latency(observer), not_ready=away)


@contextmanager
def showing(supervisor: Supervisor, console: Console) -> Iterator[View]:
    """Yield a live view on a terminal, else a view of log lines."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield View(supervisor, live)
    else:
        yield View(supervisor, None)


def picture(words: str, supervisor: Supervisor, observer: Observer | None, width: int = _WIDE) -> RenderableType:
    """Draw the whole view: status, programs, topics, the last windows. Below `_WIDE` columns, programs are above topics."""
    parts: list[RenderableType] = [Text(f"tweetwire: {words}", style="bold")]
    if observer is None:
        return Group(*parts, _programs(supervisor))
    if width < _WIDE:
        parts += [_programs(supervisor), _topics(observer)]
    else:
        side_by_side = Table.grid(padding=(0, 2))
        side_by_side.add_row(_programs(supervisor), _topics(observer))
        parts.append(side_by_side)
    parts.append(Text(_latency(observer), style="dim", no_wrap=True, overflow="ellipsis"))
    if observer.tally.latest:
        parts.append(_windows(observer))
    return Group(*parts)


def check_table(rows: list[CheckRow]) -> Table:
    """Return the closing check as a table."""
    table = _table(["what"], ["wanted", "found"])
    table.title, table.title_justify = "check", "left"
    table.add_column("")
    for row in rows:
        mark = Text("right", style="green") if row.is_right else Text(f"WRONG {row.faults}".strip(), style="bold red")
        table.add_row(row.what, f"{row.wanted:,}", f"{row.found:,}", mark)
    return table


def _programs(supervisor: Supervisor) -> Table:
    table = _table(["program", "state", "ready on"], ["restarts"])
    for name, child in supervisor.children.items():
        state = Text(child.state.value, style=_COLOURS.get(child.state, "dim"))
        table.add_row(name, state, child.address, Text(f"{child.restarts}", style="red" if child.restarts else ""))
    return table


def _topics(observer: Observer) -> Table:
    table = _table(["topic"], ["events", "a second", "to ack"])
    for topic, rate in observer.rates.items():
        to_ack = f"{observer.unsettled(topic):,}" if topic in CHANGES else ""
        table.add_row(topic, f"{rate.next:,}", f"{rate.per_second:,.0f}", to_ack)
    return table


def _windows(observer: Observer) -> Table:
    table = _table(["window of tweets_stats"], ["tweets", "a second"])
    table.add_column("hashtags", no_wrap=True, overflow="ellipsis")
    for message in observer.tally.latest:
        tags = " ".join(f"#{tag.key}" for tag in message.hashtags[:5])
        table.add_row(message.window.start, f"{message.tweets:,}", f"{message.per_second:,.0f}", tags)
    return table


def _latency(observer: Observer) -> str:
    parts = []
    lag = observer.tally.lag
    if lag.count:
        parts.append(f"MongoDB to broker: p50 {lag.percentile(0.5):.0f} ms, p95 {lag.percentile(0.95):.0f} ms")
    report = observer.subscriber.last
    if report and report.latency_ms.get("p50") is not None:
        parts.append(f"broker to subscriber: p50 {report.latency_ms['p50']} ms, p95 {report.latency_ms['p95']} ms")
    return "; ".join(parts)


def _table(left: list[str], right: list[str]) -> Table:
    # Without lines around the cells, the whole view has room on 80 columns and 24 lines.
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
