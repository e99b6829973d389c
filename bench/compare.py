"""Two runs side by side: the ratio of the medians of each row that both have."""

from msgspec import Struct

from bench.results import Results
from bench.row import Row

__all__ = ["Compared", "compare"]

# The same code differs by as much from run to run on a machine that others use too.
_NOISE = 0.1


class Compared(Struct):
    """The medians of one row in two runs, in `unit`; None where one was not measured."""

    name: str
    what: str
    unit: str
    old: float | None
    new: float | None
    is_more_better: bool

    @property
    def ratio(self) -> float | None:
        """New over old."""
        return self.new / self.old if self.old and self.new is not None else None

    @property
    def is_better(self) -> bool | None:
        """Whether the new one is better; None where they differ by no more than chance makes them."""
        if self.ratio is None or abs(self.ratio - 1) <= _NOISE:
            return None
        return (self.ratio > 1) == self.is_more_better


def compare(old: Results, new: Results) -> list[Compared]:
    """Set rows beside each other that have the same name and the same text, in the order of the new run."""
    before = {_key(row): row for row in old.rows}
    return [
        Compared(row.name, row.what, row.unit, before[_key(row)].median, row.median, row.is_more_better)
        for row in new.rows
        if _key(row) in before
    ]


def _key(row: Row) -> tuple[str, str, str]:
    return row.name, row.what, row.unit
