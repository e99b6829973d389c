"""How long to pause before the next try of what just failed."""

import random

__all__ = ["Backoff"]


class Backoff:
    """Pauses that double from `first_s` to `max_s`.

    Each is drawn from its upper half, so that many clients of a server that comes back do not come at once.
    """

    def __init__(self, first_s: float = 0.1, max_s: float = 2.0) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def pause_s(self) -> float:
        """Return the seconds to wait this time."""
        pause = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 — jitter, not a secret
        self._next_s = min(self._next_s * 2, self._max_s)
        return pause

    def reset(self) -> None:
        """Begin anew with the first pause: it went well."""
        self._next_s = self._first_s
