"""Pauses before a client connects again."""

from typing import Final

from tweetwire.backoff import Backoff

__all__ = ["ReconnectPauses"]

FIRST_S: Final = 0.1
MAX_S: Final = 2.0
SETTLED_S: Final = 5.0
"""A connection that is lost within this time counts as another failure to connect, in seconds."""


class ReconnectPauses:
    """Pauses that grow with each failure in a row. A short connection counts as a failure, too."""

    def __init__(self) -> None:
        self._backoff = Backoff(FIRST_S, MAX_S)

    def next_s(self) -> float:
        """Return the seconds to wait before the next attempt, and count it as a failure until a connection lasts."""
        return self._backoff.next_pause_s()

    def note_lost(self, lasted_s: float) -> None:
        """Note that a connection was lost after `lasted_s` seconds."""
        if lasted_s > SETTLED_S:
            self._backoff.reset()
