"""The events that a subscription settled without a delivery, since they had expired."""

from collections import deque
from typing import Final

__all__ = ["Expired"]

_KEPT: Final = 1000


class Expired:
    """The number of these events since the start, and the offsets of the last ones, for reports."""

    __slots__ = ("_offsets", "count")

    def __init__(self) -> None:
        self.count = 0
        # A deque takes 600 bytes, and most subscriptions have no such event.
        self._offsets: deque[int] | tuple[()] = ()

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    def note(self, offsets: list[int]) -> None:
        """Note further events."""
        self.count += len(offsets)
        if isinstance(self._offsets, tuple):
            self._offsets = deque(maxlen=_KEPT)
        self._offsets.extend(offsets)
