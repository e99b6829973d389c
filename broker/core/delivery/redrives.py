"""Redrive dead events at a limited rate."""

from collections import deque
from typing import Final

from broker.core.topic.subscription import Subscription

__all__ = ["STEP_MS", "PacedRedrive"]

STEP_MS: Final = 100


class PacedRedrive:
    """The `offsets` of a subscription that are not redriven yet. `rate` of them are redriven each second."""

    def __init__(self, subscription: Subscription, offsets: list[int], rate: int) -> None:
        self.subscription = subscription
        self._left = deque(offsets)
        self._rate = rate
        self._owed = 0.0

    @property
    def is_done(self) -> bool:
        """Whether no offset is left."""
        return not self._left

    def next_share(self) -> list[int]:
        """Remove and return the offsets that are due in one step of `STEP_MS`."""
        self._owed += self._rate * STEP_MS / 1000
        share = [self._left.popleft() for _ in range(min(int(self._owed), len(self._left)))]
        self._owed -= len(share)
        return share
