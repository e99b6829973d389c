"""Rows with their figures, as a table and as JSON."""

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

__all__ = ["Row", "measure", "show", "store"]


@dataclass
class Row:
    """One measured thing: its figures (per second), the goal, and the share of its ceiling."""

    name: str
    what: str
    figures: list[float]
    goal: float
    ceiling: str = ""
    share: float | None = None
    goal_share: float | None = None

    @property
    def median(self) -> float:
        """The figure that counts."""
        return statistics.median(self.figures)

    @property
    def is_met(self) -> bool:
        """Whether the goal is reached."""
        return self.median >= self.goal and (self.goal_share is None or (self.share or 0) >= self.goal_share)


def measure(run: Callable[[], float], rounds: int, told: Callable[[str], None], name: str) -> list[float]:
    """Run `rounds` times, telling of each."""
    figures = []
    for number in range(1, rounds + 1):
        figures.append(run())
        told(f"{name} run {number}/{rounds}: {figures[-1]:,.0f} /s")
    return figures


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table(title="tweetwire broker, events a second")
    for heading in ("row", "what", "median", "lowest", "highest", "goal", "beside it", ""):
        table.add_column(heading, justify="right" if heading in {"median", "lowest", "highest", "goal"} else "left")
    for row in rows:
        share = "" if row.share is None else f"{row.share:.0%} of {row.ceiling}"
        figures = [f"{value:,.0f}" for value in (row.median, min(row.figures), max(row.figures), row.goal)]
        table.add_row(row.name, row.what, *figures, share, "met" if row.is_met else "short")
    Console().print(table)


def store(rows: list[Row], folder: Path) -> Path:
    """Write the figures as JSON; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "broker.json"
    path.write_text(
        json.dumps([{**asdict(row), "median": row.median, "is_met": row.is_met} for row in rows], indent=1) + "\n"
    )
    return path
