"""Count many failed tries in parts, such as those of a consumer with 100,000 events in flight."""

from typing import Final

from broker.core.topic.subscription import Consumer
from tweetwire.protocol.failures import Failure

__all__ = ["SHARE", "Failing"]

SHARE: Final = 2500
"""How many failed tries are counted in one step. That takes some tens of milliseconds."""


class Failing:
    """The `offsets` whose failed try is not counted yet. If the consumer `is_leaving`, it is removed after that."""

    def __init__(self, consumer: Consumer, offsets: list[int], failure: Failure, *, is_leaving: bool = False) -> None:
        self.consumer = consumer
        self.failure = failure
        self.is_leaving = is_leaving
        self._offsets = offsets
        self._at = 0

    @property
    def is_done(self) -> bool:
        """Whether no offset is left."""
        return self._at >= len(self._offsets)

    def next_share(self) -> list[int]:
        """Return the offsets to count in this step, each once."""
        share = self._offsets[self._at : self._at + SHARE]
        self._at += len(share)
        return share
