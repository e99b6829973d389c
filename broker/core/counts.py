"""The counters that ``stats`` reports."""

from typing import Final

__all__ = ["COUNTED", "PartCounts"]

COUNTED: Final = (
    *("commands", "refused", "rejected_lines", "delivered", "acked", "expired", "damaged"),
    "pattern_topics_left_out",
    *("requests", "replied", "unreplied"),
    *("confirmed_replicated", "confirmed_late"),
    *("failed_nack", "failed_timeout", "failed_disconnect"),
)
"""The counters of the core itself."""


class PartCounts:
    """The counters of a part of the broker's process, such as a gateway; ``stats`` shows each as ``<part>_<name>``."""

    def __init__(self, counts: dict[str, int], part: str, names: tuple[str, ...]) -> None:
        self._counts = counts
        self._part = part
        for name in names:
            self.set_to(name, 0)

    def add(self, name: str, number: int = 1) -> None:
        """Add `number` to a counter."""
        self._counts[f"{self._part}_{name}"] += number

    def set_to(self, name: str, number: int) -> None:
        """Set a counter of things that exist now, such as connections."""
        self._counts[f"{self._part}_{name}"] = number
