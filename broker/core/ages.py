"""Which events are older than a moment: marks of (time, offset), one a second at most, for the last hours."""

from bisect import bisect_right
from typing import Final

__all__ = ["Ages"]

STEP_MS: Final = 500
KEPT: Final = 100_000


class Ages:
    """A mark (t, o) says that the events from offset `o` up to the next mark's were stored within `STEP_MS` from `t` on.

    Begins with a log whose last event was stored at `last_ms`.
    """

    def __init__(self, last_ms: int) -> None:
        self._times = [last_ms + 1 - STEP_MS]
        self._offsets = [0]

    def note(self, first: int, time_ms: int) -> None:
        """The event at offset `first` was stored at `time_ms`, the ones behind it within moments."""
        if time_ms - self._times[-1] >= STEP_MS:
            self._times.append(time_ms)
            self._offsets.append(first)
            if len(self._times) > KEPT:
                del self._times[: KEPT // 2], self._offsets[: KEPT // 2]

    def offset_before(self, time_ms: int, next_: int) -> int:
        """Return an offset below which every event was stored before `time_ms`, as high a one as the marks tell.

        `next_` is the offset behind the last event.
        """
        following = bisect_right(self._times, time_ms - STEP_MS)
        if following == 0:
            return 0
        return self._offsets[following] if following < len(self._offsets) else next_
