"""Compare two runs: the ratio of the medians of each row that both have."""

from msgspec import Struct

from bench.results import Results
from bench.row import BenchRow

__all__ = ["Compared", "compare"]

# On a shared machine, two runs of the same code differ by up to this share.
_NOISE = 0.1


class Compared(Struct):
    """The medians of one row in two runs, in `unit`; None if a run has not measured it."""

    name: str
    what: str
    unit: str
    old: float | None
    new: float | None
    is_more_better: bool

    @property
    def ratio(self) -> float | None:
        """The new median divided by the old one."""
        return self.new / self.old if self.old and self.new is not None else None

    @property
    def is_better(self) -> bool | None:
        """Whether the new median is better; None if the difference may be chance."""
        if self.ratio is None or abs(self.ratio - 1) <= _NOISE:
            return None
        return (self.ratio > 1) == self.is_more_better


def compare(old: Results, new: Results) -> list[Compared]:
    """Return the rows that both runs have, by name and text, in the order of the new run."""
    before = {_key(row): row for row in old.rows}
    return [
        Compared(row.name, row.what, row.unit, before[_key(row)].median, row.median, row.is_more_better)
        for row in new.rows
        if _key(row) in before
    ]


def _key(row: BenchRow) -> tuple[str, str, str]:
    return row.name, row.what, row.unit
