"""The two times of an event: its arrival by the broker's own clock, and its date by the system's clock.

The broker's clock never goes back and never jumps, so timers and ages use it. The system's clock may be set forward or back,
and dates follow it.
"""

from typing import Final

__all__ = ["HELD_MS", "Dates"]

HELD_MS: Final = 60_000
"""The largest step back of the system's clock after which dates wait.

If the system's clock goes back by less than this, events get the date of the last one until the clock has caught up.
"""


class Dates:
    """Converts times of the broker's clock to dates. The system's clock is ahead of it by `shift_ms`, which may be negative."""

    __slots__ = ("shift_ms",)

    def __init__(self) -> None:
        self.shift_ms = 0

    def of(self, now_ms: int) -> int:
        """Return the date (ms) of a time of the broker's clock."""
        return now_ms + self.shift_ms

    def next_date(self, now_ms: int, last_ms: int, *, is_batch_begun: bool) -> int:
        """Return the date of a topic's next event; its last event has the date `last_ms`.

        Dates go back only if the system's clock was set back by more than `HELD_MS`, and only between batches.
        """
        date_ms = now_ms + self.shift_ms
        return last_ms if date_ms < last_ms and (is_batch_begun or last_ms - date_ms <= HELD_MS) else date_ms
