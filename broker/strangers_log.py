"""Rate-limited warnings about the connections of unknown clients, so that these cannot fill the disk with the log."""

from time import monotonic
from typing import Any, Final

import structlog

__all__ = ["StrangersLog", "strangers_log"]

LINES_MAX: Final = 20
WINDOW_S: Final = 10.0

logger = structlog.stdlib.get_logger()


class StrangersLog:
    """Logs each event at most `LINES_MAX` times in `WINDOW_S` seconds.

    The next line of the same event has the number of lines that were left out before it.
    """

    def __init__(self) -> None:
        self._window: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._window_began_s = monotonic()

    def warning(self, event: str, **fields: Any) -> None:
        """Log an event, or count it as left out if it was logged too often."""
        now_s = monotonic()
        if now_s - self._window_began_s >= WINDOW_S:
            self._window_began_s = now_s
            self._window.clear()
        self._window[event] = self._window.get(event, 0) + 1
        if self._window[event] > LINES_MAX:
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        left_out = self._left_out.pop(event, 0)
        logger.warning(event, **fields, **({"left_out_before": left_out} if left_out else {}))


strangers_log: Final = StrangersLog()
