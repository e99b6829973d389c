"""Make deliberate faults: draw the outcome of each delivery at random."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tweetwire import StoredEvent

__all__ = ["Faults", "Lot"]


class Lot(NamedTuple):
    """The answers to one batch. With `is_vanishing`, the connection is dropped and the batch gets no answer."""

    acked: Sequence[StoredEvent]
    nacked: Sequence[StoredEvent]
    stalled: int
    is_vanishing: bool


class Faults:
    """The shares (0–1) of deliveries that are nacked, that get no answer, and after which the connection is dropped."""

    def __init__(self, nack_share: float, stall: float, vanish: float, seed: int) -> None:
        self._shares = (nack_share, stall, vanish)
        self._dice = Random(seed)  # noqa: S311 — it only draws faults
        self.nacked = self.stalled = self.vanished = 0

    def draw(self, events: Sequence[StoredEvent]) -> Lot:
        """Draw the outcome of each event of a batch."""
        if not any(self._shares):
            return Lot(events, [], 0, is_vanishing=False)
        nack_share, stall, vanish = self._shares
        acked, nacked, stalled = [], [], 0
        for event in events:
            drawn = self._dice.random()
            if drawn < vanish:
                self.vanished += 1
                return Lot([], [], 0, is_vanishing=True)
            if drawn < vanish + nack_share:
                nacked.append(event)
            elif drawn < vanish + nack_share + stall:
                stalled += 1
            else:
                acked.append(event)
        self.nacked += len(nacked)
        self.stalled += stalled
        return Lot(acked, nacked, stalled, is_vanishing=False)
