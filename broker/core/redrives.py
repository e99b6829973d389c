"""Dead events that are given again at a bounded rate."""

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.core.subscription import Subscription

__all__ = ["STEP_MS", "Redrive"]

STEP_MS: Final = 100


class Redrive:
    """The `offsets` that are left to redrive, `rate` a second."""

    def __init__(self, subscription: "Subscription", offsets: list[int], rate: int) -> None:
        self.subscription = subscription
        self._left = deque(offsets)
        self._rate = rate
        self._owed = 0.0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return not self._left

    def next_share(self) -> list[int]:
        """Take what is due for one step of `STEP_MS`."""
        self._owed += self._rate * STEP_MS / 1000
        share = [self._left.popleft() for _ in range(min(int(self._owed), len(self._left)))]
        self._owed -= len(share)
        return share
