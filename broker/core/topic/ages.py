"""Find the events older than a given time. Marks of (time, offset), at most two a second, are kept for the last hours."""

from bisect import bisect_right
from typing import Final

__all__ = ["Ages"]

STEP_MS: Final = 500
KEPT: Final = 100_000


class Ages:
    """Marks of the arrival of events by the broker's clock. The log's last event arrived at `last_ms`.

    The events from the offset of a mark (t, offset) up to the next mark arrived within `STEP_MS` from t on.
    """

    def __init__(self, last_ms: int) -> None:
        self._times = [last_ms + 1 - STEP_MS]
        self._offsets = [0]

    def note(self, first: int, time_ms: int) -> None:
        """Note that the events from offset `first` on arrived at `time_ms`."""
        if time_ms - self._times[-1] >= STEP_MS:
            self._times.append(time_ms)
            self._offsets.append(first)
            if len(self._times) > KEPT:
                del self._times[: KEPT // 2], self._offsets[: KEPT // 2]

    def offset_before(self, time_ms: int, next_: int) -> int:
        """Return the highest offset in the marks below which all events were stored before `time_ms`.

        `next_` is the offset after the last event.
        """
        following = bisect_right(self._times, time_ms - STEP_MS)
        if following == 0:
            return 0
        return self._offsets[following] if following < len(self._offsets) else next_
