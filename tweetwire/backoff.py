"""How long to wait after a failure before the next try.

All programs follow one rule. The limit of the nth pause in a row is `first_s` × 2^(n - 1) seconds, and at most `max_s`.
The pause is drawn evenly from the upper half of that limit. Because pauses are random, the clients of a restarted server do not
all return at the same moment. Because of the lower bound, a single client does not retry without a pause.
"""

import random
from collections.abc import Callable

__all__ = ["Backoff"]

_ASKED_SPREAD = 0.2


class Backoff:
    """Pauses that grow with each failure in a row.

    Args:
        first_s: The longest first pause, in seconds.
        max_s: The longest pause, in seconds.
        draw: Returns a random number from 0 to 1.
    """

    def __init__(self, first_s: float = 0.1, max_s: float = 2.0, draw: Callable[[], float] = random.random) -> None:
        self.failures = 0
        self._first_s = first_s
        self._max_s = max_s
        self._draw = draw

    def next_pause_s(self, asked_s: float = 0.0) -> float:
        """Count a failure, and return the seconds to wait.

        Args:
            asked_s: The pause that the server asks for, in seconds. The result is at least `asked_s`. It is at most the
                longer of the pause by the module's rule and 1.2 × `asked_s`.
        """
        self.failures += 1
        pause_s = min(self._first_s * 2.0 ** min(self.failures - 1, 30), self._max_s)
        return max(pause_s * (0.5 + 0.5 * self._draw()), asked_s * (1 + _ASKED_SPREAD * self._draw()))

    def reset(self) -> None:
        """Note a success: the next failure gets the first pause again."""
        self.failures = 0
