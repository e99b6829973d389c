"""The results: rows with their figures and goals, and how the cost of an event grows with the number of events."""

import statistics
from typing import Literal

from msgspec import Struct

__all__ = ["FLAT_WITHIN", "BenchRow", "Growth", "Verdict"]

FLAT_WITHIN = 0.25
Verdict = Literal["met", "short", "measured", "not measured", "failed"]
_MORE_IS_BETTER = {"/s", "%", "times"}


class BenchRow(Struct, kw_only=True):
    """One measured property: the figures of its rounds and the goal, in `unit`, and a text with a comparison.

    More is better for rates and shares; less is better for times, sizes and losses. `reason` says why there are no figures.
    """

    name: str
    what: str
    unit: str = ""
    figures: list[float] = []
    goal: float | None = None
    beside: str = ""
    reason: str = ""
    is_failed: bool = False

    @property
    def median(self) -> float | None:
        """The median of the rounds, which is the row's figure."""
        return statistics.median(self.figures) if self.figures else None

    @property
    def is_more_better(self) -> bool:
        """Whether a higher figure is a better one."""
        return self.unit in _MORE_IS_BETTER

    @property
    def verdict(self) -> Verdict:
        """The result as text: whether the figure meets its goal, or why there is no figure."""
        median = self.median
        if median is None:
            return "failed" if self.is_failed else "not measured"
        if self.goal is None:
            return "measured"
        return "met" if (median >= self.goal if self.is_more_better else median <= self.goal) else "short"


class Growth(Struct, kw_only=True):
    """The cost of an event (µs) for different numbers of events, each a multiple of the number in the settings."""

    name: str
    what: str
    scales: list[float] = []
    costs_us: list[float] = []
    reason: str = ""
    is_failed: bool = False

    @property
    def spread(self) -> float | None:
        """The difference between the highest and the lowest cost, as a share of the lowest."""
        return max(self.costs_us) / min(self.costs_us) - 1 if self.costs_us else None

    @property
    def verdict(self) -> Verdict:
        """Whether the cost is flat."""
        if self.spread is None:
            return "failed" if self.is_failed else "not measured"
        return "met" if self.spread <= FLAT_WITHIN else "short"
