"""Rows with their figures, as a table and as JSON."""

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

__all__ = ["Row", "measure", "show", "store"]

_WIDTH_MIN = 150
_VERDICTS = {True: "met", False: "short", None: ""}


@dataclass
class Row:
    """One measured thing: its figures and its goal, in `unit`, and what it is seen beside.

    Of rates and shares more is better, of times and sizes less.
    """

    name: str
    what: str
    unit: str
    figures: list[float]
    goal: float | None
    beside: str = ""

    @property
    def median(self) -> float:
        """The figure that counts."""
        return statistics.median(self.figures)

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached, None where there is none."""
        if self.goal is None:
            return None
        return self.median >= self.goal if self.unit in {"/s", "%"} else self.median <= self.goal


def measure(run: Callable[[], float], rounds: int, told: Callable[[str], None], name: str) -> list[float]:
    """Run `rounds` times, telling of each."""
    figures = []
    for number in range(1, rounds + 1):
        figures.append(run())
        told(f"{name} run {number}/{rounds}: {figures[-1]:,.0f} /s")
    return figures


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table(title="tweetwire broker")
    for heading in ("row", "what", "median", "lowest", "highest", "goal", "", "beside it"):
        table.add_column(heading, justify="right" if heading in {"median", "lowest", "highest", "goal"} else "left")
    for row in rows:
        values = (row.median, min(row.figures), max(row.figures), row.goal)
        figures = ["" if value is None else f"{value:,.{0 if value >= 100 else 2}f} {row.unit}" for value in values]
        table.add_row(row.name, row.what, *figures, _VERDICTS[row.is_met], row.beside)
    console = Console()
    console.width = max(console.width, _WIDTH_MIN)
    console.print(table)


def store(rows: list[Row], folder: Path) -> Path:
    """Write the figures as JSON; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "broker.json"
    path.write_text(
        json.dumps([{**asdict(row), "median": row.median, "is_met": row.is_met} for row in rows], indent=1) + "\n"
    )
    return path
