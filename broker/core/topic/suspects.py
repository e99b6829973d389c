"""Events that were with a consumer when it was lost or fell silent: one of them may be the reason."""

from collections.abc import Iterable
from typing import Final

__all__ = ["Suspects"]

SUSPECTS_MAX: Final = 10_000
"""The most suspects of one subscription.

If more events are lost, finding the reason may take one more loss.
"""


class Suspects:
    """The suspects of one subscription, by offset, until they are settled."""

    __slots__ = ("_has_begun",)

    def __init__(self) -> None:
        # For each suspect, whether a client has begun it since the last loss. None while there is no suspect, which is nearly
        # always.
        self._has_begun: dict[int, bool] | None = None

    def __contains__(self, offset: int) -> bool:
        return self._has_begun is not None and offset in self._has_begun

    def __bool__(self) -> bool:
        return bool(self._has_begun)

    def add(self, offsets: Iterable[int], *, were_begun: bool) -> None:
        """Note the events that a consumer had when it was lost."""
        for offset in offsets:
            if self._has_begun is None:
                self._has_begun = {}
            if offset in self._has_begun or len(self._has_begun) < SUSPECTS_MAX:
                self._has_begun[offset] = were_begun

    def note_begun(self, offsets: Iterable[int]) -> None:
        """Note that a client works on events, so their arrival has not ended it."""
        for offset in offsets if self._has_begun else ():
            if offset in self:
                self.add([offset], were_begun=True)

    def was_lost_unbegun(self, offset: int) -> bool:
        """Whether the last consumer that had the event was lost before it had begun the event."""
        return self._has_begun is not None and self._has_begun.get(offset) is False

    def clear_below(self, earliest: int) -> None:
        """Forget events that are no longer in the log."""
        if self._has_begun:
            self._has_begun = {offset: begun for offset, begun in self._has_begun.items() if offset >= earliest}

    def clear(self, offsets: Iterable[int]) -> None:
        """Forget events that are settled or dead."""
        for offset in offsets if self._has_begun else ():
            if self._has_begun is not None:
                self._has_begun.pop(offset, None)
