"""What is measured: rows with their figures and goals, and how the cost of an event grows with the work."""

import statistics
from typing import Literal

from msgspec import Struct

__all__ = ["FLAT_WITHIN", "Growth", "Row", "Verdict"]

FLAT_WITHIN = 0.25
Verdict = Literal["met", "short", "measured", "not measured", "failed"]
_MORE_IS_BETTER = {"/s", "%", "times"}


class Row(Struct, kw_only=True):
    """One measured thing: the figure of each round and the goal, in `unit`, and what it is seen beside.

    Of rates and shares more is better, of times, sizes and falls less. `reason` tells why there are no figures.
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
        """The figure that counts."""
        return statistics.median(self.figures) if self.figures else None

    @property
    def is_more_better(self) -> bool:
        """Whether a higher figure is a better one."""
        return self.unit in _MORE_IS_BETTER

    @property
    def verdict(self) -> Verdict:
        """How the figure stands to its goal."""
        median = self.median
        if median is None:
            return "failed" if self.is_failed else "not measured"
        if self.goal is None:
            return "measured"
        return "met" if (median >= self.goal if self.is_more_better else median <= self.goal) else "short"


class Growth(Struct, kw_only=True):
    """What an event costs (µs) at different amounts of work, these as multiples of the first that was decided on."""

    name: str
    what: str
    scales: list[float] = []
    costs_us: list[float] = []
    reason: str = ""
    is_failed: bool = False

    @property
    def spread(self) -> float | None:
        """How much more the dearest costs than the cheapest, as a share of the cheapest."""
        return max(self.costs_us) / min(self.costs_us) - 1 if self.costs_us else None

    @property
    def verdict(self) -> Verdict:
        """Whether the cost is flat."""
        if self.spread is None:
            return "failed" if self.is_failed else "not measured"
        return "met" if self.spread <= FLAT_WITHIN else "short"
