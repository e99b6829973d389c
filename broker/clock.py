"""The broker's clock, and its difference to the system's clock."""

import time

import structlog

__all__ = ["Clock"]

logger = structlog.stdlib.get_logger()

SET_MS = 1000
"""If the difference jumps by at least this much, the system's clock was set; a smaller change is drift."""


class Clock:
    """A clock that starts with the system's time and never goes back. It also advances while the machine sleeps.

    Setting the system's clock does not change it.
    """

    def __init__(self) -> None:
        self._id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._base_ns = time.time_ns() - time.clock_gettime_ns(self._id)
        self._shift_ms = 0

    def now_ms(self) -> int:
        """Return the time in milliseconds. When the clock is created, it is the time since 1970 UTC."""
        return (self._base_ns + time.clock_gettime_ns(self._id)) // 1_000_000

    def shift_ms(self) -> int:
        """Return how far (ms) the system's clock is ahead of this clock. Logs a warning if the system's clock was set."""
        shift_ms = time.time_ns() // 1_000_000 - self.now_ms()
        moved_ms, self._shift_ms = shift_ms - self._shift_ms, shift_ms
        if abs(moved_ms) >= SET_MS:
            logger.warning(
                "the system's clock was set; new events get its date, timers and retention continue unchanged",
                seconds=moved_ms / 1000,
            )
        return shift_ms
