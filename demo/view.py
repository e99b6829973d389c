"""What the demo shows while it runs: a live picture on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from broker.program import logger
from demo.check import Row
from demo.observer import Observer
from demo.programs import State
from demo.stack import TOPICS
from demo.supervisor import Supervisor
from demo.tally import CHANGES

__all__ = ["View", "check_table", "showing"]

_LINE_EVERY_S = 5.0
_COLOURS = {State.READY: "green", State.RESTARTING: "red", State.STARTING: "yellow", State.WAITING: "dim"}


class View:
    """Shows the stack; `say` changes the line that tells what is going on."""

    def __init__(self, supervisor: Supervisor, live: Live | None) -> None:
        self._supervisor = supervisor
        self._live = live
        self._words = "starting"
        self._line_at = 0.0

    def say(self, words: str) -> None:
        """Tell what is going on."""
        if words != self._words and self._live is None:
            logger().info(words)
        self._words = words

    def show(self, observer: Observer | None) -> None:
        """Show how things stand now."""
        if self._live is not None:
            self._live.update(self._picture(observer), refresh=True)
        elif observer is not None and time.monotonic() - self._line_at >= _LINE_EVERY_S:
            self._line_at = time.monotonic()
            self._log_line(observer)

    def _picture(self, observer: Observer | None) -> RenderableType:
        parts: list[RenderableType] = [Text(f"tweetwire: {self._words}", style="bold"), self._programs()]
        if observer is not None:
            parts += [_topics(observer), _windows(observer)]
        return Group(*parts)

    def _programs(self) -> Table:
        table = Table(expand=False)
        for heading in ("program", "state", "listens on", "restarts"):
            table.add_column(heading, justify="right" if heading == "restarts" else "left")
        for name, child in self._supervisor.children.items():
            state = Text(child.state.value, style=_COLOURS.get(child.state, ""))
            restarts = Text(f"{child.restarts}", style="red" if child.restarts else "")
            table.add_row(name, state, child.address, restarts)
        return table

    def _log_line(self, observer: Observer) -> None:
        rates = {topic: f"{rate.next} ({rate.per_second:.0f}/s)" for topic, rate in observer.rates.items()}
        report = observer.subscriber.last
        away = [name for name, child in self._supervisor.children.items() if child.state is not State.READY]
        logger().info(self._words, **rates, latency_ms=report.latency_ms if report else None, not_ready=away)


@contextmanager
def showing(supervisor: Supervisor, console: Console) -> Iterator[View]:
    """Give a live view on a terminal, one of lines elsewhere."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield View(supervisor, live)
    else:
        yield View(supervisor, None)


def check_table(rows: list[Row]) -> Table:
    """Lay the closing check out as a table."""
    table = Table(title="check", title_justify="left")
    table.add_column("what")
    table.add_column("wanted", justify="right")
    table.add_column("found", justify="right")
    table.add_column("")
    for row in rows:
        mark = Text("right", style="green") if row.is_right else Text(f"WRONG {row.faults}".strip(), style="bold red")
        table.add_row(row.what, f"{row.wanted:,}", f"{row.found:,}", mark)
    return table


def _topics(observer: Observer) -> Table:
    table = Table()
    for heading in ("topic", "events", "per second", "to be acked"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    for topic in TOPICS:
        if topic in observer.rates:
            rate = observer.rates[topic]
            lag = f"{observer.unsettled(topic):,}" if topic in CHANGES else ""
            table.add_row(topic, f"{rate.next:,}", f"{rate.per_second:,.0f}", lag)
    if observer.subscriber.last:
        latency = observer.subscriber.last.latency_ms
        told = " ".join(f"{name} {value:g} ms" for name, value in latency.items() if value is not None)
        table.caption = f"broker to subscriber: {told}" if told else None
    return table


def _windows(observer: Observer) -> Table:
    table = Table()
    for heading in ("tweets_stats window", "tweets", "per second", "hashtags"):
        table.add_column(heading)
    for message in observer.tally.latest:
        tags = " ".join(f"#{tag.get('key', '')}" for tag in message.hashtags[:5])
        table.add_row(message.window.start, f"{message.tweets}", f"{message.per_second:.1f}", tags)
    return table
