"""Which events are older than a moment: marks of (time, offset), one a second at most, for the last hours."""

from bisect import bisect_right
from typing import Final

__all__ = ["Ages"]

STEP_MS: Final = 500
KEPT: Final = 100_000


class Ages:
    """Begins with a log up to offset `next`, whose last event was stored at `last_ms`."""

    def __init__(self, next_: int, last_ms: int) -> None:
        self._times = [0, last_ms + 1]
        self._offsets = [0, next_]

    def note(self, first: int, time_ms: int) -> None:
        """The event at offset `first` was stored at `time_ms`."""
        if time_ms - self._times[-1] >= STEP_MS:
            self._times.append(time_ms)
            self._offsets.append(first)
            if len(self._times) > KEPT:
                del self._times[1 : KEPT // 2], self._offsets[: KEPT // 2 - 1]

    def offset_before(self, time_ms: int) -> int:
        """Return an offset below which every event was stored before `time_ms`, as high a one as the marks tell."""
        return self._offsets[bisect_right(self._times, time_ms) - 1] if time_ms > 0 else 0
