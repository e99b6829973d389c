"""The events that a log writes together."""

from dataclasses import dataclass, field

__all__ = ["Batch"]


@dataclass(slots=True)
class Batch:
    """Events that are written together: `lines[i]` is the event at offset `first` + i.

    `timestamps` (ms) never decrease. `arrived_ms` is the time by the broker's clock at which the last event arrived; None
    stands for its timestamp.
    """

    first: int
    lines: list[bytes] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    arrived_ms: int | None = None

    @property
    def next(self) -> int:
        """The offset after the last event."""
        return self.first + len(self.lines)
