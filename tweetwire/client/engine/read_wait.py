"""How long a read waits at the end of a log, over several commands."""

from typing import Final

from tweetwire.protocol.errors import Refusal

__all__ = ["PAUSE_S", "ReadWait", "longest_wait_s"]

LONGEST_S: Final = 30.0
"""The longest wait of one command, in seconds. The broker refuses more than 60."""
PAUSE_S: Final = 0.1
"""The pause before a read is sent again to a broker that shuts down, in seconds."""


def longest_wait_s(timeout_s: float) -> float:
    """Return the longest wait of one command of a client that takes a broker as lost after `timeout_s` seconds of silence."""
    return min(LONGEST_S, timeout_s / 2)


class ReadWait:
    """The time until which a read waits. A long wait takes several commands of at most `longest_s` seconds.

    Times are those of the monotonic clock, in seconds.
    """

    def __init__(self, wait_s: float, longest_s: float, now_s: float) -> None:
        self._ends_s = now_s + wait_s
        self._longest_s = longest_s

    def next_s(self, now_s: float) -> float:
        """Return how long the next command waits."""
        return min(max(0.0, self._ends_s - now_s), self._longest_s)

    def is_over(self, now_s: float) -> bool:
        """Whether the time is over."""
        return now_s >= self._ends_s

    def outlasts(self, refusal: Refusal, now_s: float) -> bool:
        """Whether to read again after a refusal: the broker is shutting down, and may be back before the time is over."""
        return refusal.code == "shutting_down" and not self.is_over(now_s)
