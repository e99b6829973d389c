"""Make ids for events that a command publishes. They are unique, and a later id sorts after an earlier one."""

import os
import time

__all__ = ["EventIds"]


class EventIds:
    """Makes ids: the time in nanoseconds as 16 hexadecimal digits, and 8 random digits of this process."""

    def __init__(self) -> None:
        self._last = 0
        self._process = os.urandom(4).hex()

    def make(self) -> str:
        """Return an id that sorts after all ids that this object has made."""
        # The clock may be set back, and two reads may give the same time.
        self._last = max(time.time_ns(), self._last + 1)
        return f"{self._last:016x}-{self._process}"
