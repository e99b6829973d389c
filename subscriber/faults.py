"""Faults on purpose: what happens to each delivery, drawn by lot."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from broker import StoredEvent

__all__ = ["Faults", "Lot"]


class Lot(NamedTuple):
    """What is to be done with a batch; with `is_vanishing`, the connection is dropped and none of it is done."""

    acked: Sequence[StoredEvent]
    nacked: Sequence[StoredEvent]
    stalled: int
    is_vanishing: bool


class Faults:
    """Shares (0–1) of the deliveries that are refused, that get no answer, and at which the connection is dropped."""

    def __init__(self, nack_share: float, stall: float, vanish: float, seed: int) -> None:
        self._shares = (nack_share, stall, vanish)
        self._dice = Random(seed)  # noqa: S311 — lots, not secrets
        self.nacked = self.stalled = self.vanished = 0

    def draw(self, events: Sequence[StoredEvent]) -> Lot:
        """Draw for each event of a batch."""
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
