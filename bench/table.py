"""Rows, growths and comparisons as tables on a terminal."""

from rich.console import Console
from rich.table import Table

from bench.compare import Compared
from bench.row import FLAT_WITHIN, BenchRow, Growth

__all__ = ["figure", "show_compared", "show_growths", "show_rows"]

_WIDTH_MIN = 170
_COLOURS = {"met": "green", "short": "yellow", "failed": "red", "not measured": "magenta", "measured": ""}


def figure(value: float | None, unit: str) -> str:
    """Format a figure with two decimals, or without decimals if it is 100 or more."""
    return "" if value is None else f"{value:,.{0 if abs(value) >= 100 else 2}f} {unit}"


def show_rows(rows: list[BenchRow]) -> None:
    """Print the table of rows."""
    table = _table(
        "tweetwire", ("row", "what"), ("median", "lowest", "highest", "rounds", "goal"), ("", "compared with")
    )
    for row in rows:
        ends = (min(row.figures), max(row.figures)) if row.figures else (None, None)
        figures = (figure(value, row.unit) for value in (row.median, *ends))
        rounds = str(len(row.figures) or "")
        note = "; ".join(filter(None, (row.reason, row.beside)))
        table.add_row(row.name, row.what, *figures, rounds, figure(row.goal, row.unit), _coloured(row.verdict), note)
    _print(table)


def show_growths(growths: list[Growth]) -> None:
    """Print the cost of an event at each amount of work."""
    scales = sorted({scale for growth in growths for scale in growth.scales})
    title = f"µs an event, by multiples of the work (flat: within {FLAT_WITHIN:.0%})"
    table = _table(title, ("row", "what"), (*(f"{scale:g} ×" for scale in scales), "spread"), ("", "why not"))
    for growth in growths:
        costs = dict(zip(growth.scales, growth.costs_us, strict=True))
        cells = [f"{costs[scale]:,.2f}" if scale in costs else "" for scale in scales]
        spread = "" if growth.spread is None else f"{growth.spread:.0%}"
        table.add_row(growth.name, growth.what, *cells, spread, _coloured(growth.verdict), growth.reason)
    _print(table)


def show_compared(compared: list[Compared]) -> None:
    """Print the comparison of two runs."""
    table = _table("medians of two runs", ("row", "what"), ("old", "new", "new / old"), ("",))
    for one in compared:
        better = "" if one.is_better is None else "[green]better[/]" if one.is_better else "[red]worse[/]"
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        table.add_row(one.name, one.what, figure(one.old, one.unit), figure(one.new, one.unit), ratio, better)
    _print(table)


def _coloured(verdict: str) -> str:
    colour = _COLOURS[verdict]
    return f"[{colour}]{verdict}[/]" if colour else verdict


def _table(title: str, words: tuple[str, ...], numbers: tuple[str, ...], notes: tuple[str, ...]) -> Table:
    table = Table(title=title)
    for heading in (*words, *numbers, *notes):
        table.add_column(heading, justify="right" if heading in numbers else "left")
    return table


def _print(table: Table) -> None:
    console = Console()
    console.width = max(console.width, _WIDTH_MIN)
    console.print(table)
