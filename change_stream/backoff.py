"""How long to pause before the next try of what just failed."""

import random

__all__ = ["Backoff"]


class Backoff:
    """Pauses that double from `first_s` to `max_s`, each drawn from its upper half so that many clients do not come at once.

    A pause asked for `calm_s` or more after the last one begins anew at `first_s`.
    """

    def __init__(self, first_s: float = 0.1, max_s: float = 5.0, calm_s: float = 30.0) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._calm_s = calm_s
        self._next_s = first_s
        self._last_at = float("-inf")

    def pause_s(self, now: float) -> float:
        """Return the seconds to wait, `now` being a monotonic clock's seconds."""
        if now - self._last_at >= self._calm_s:
            self._next_s = self._first_s
        self._last_at = now
        pause = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 — jitter, not a secret
        self._next_s = min(self._next_s * 2, self._max_s)
        return pause
