"""The events that are missing in a topic's log: retention removed them, or their lines are damaged. No I/O."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from tweetwire import StoredEvent

__all__ = ["DAMAGED", "REMOVED", "Gap", "gaps", "unbroken"]

REMOVED: Final = "retention removed these events before they were sent"
DAMAGED: Final = "the lines of these events are damaged or missing in the broker's log"


class Gap(Struct, frozen=True):
    """The missing events `first` to `last`, and why they are missing."""

    first: int
    last: int
    reason: str

    def __str__(self) -> str:
        """Return the gap as text."""
        return f"{self.reason}: {self.first} to {self.last}"


def gaps(first: int, last: int, earliest: int) -> list[Gap]:
    """Return the gaps that the missing events `first` to `last` are, where the log begins at `earliest`."""
    kept = max(first, earliest)
    found = [Gap(first, min(last, earliest - 1), REMOVED), Gap(kept, last, DAMAGED)]
    return [gap for gap in found if gap.first <= gap.last]


def unbroken(events: Sequence[StoredEvent]) -> Iterator[Sequence[StoredEvent]]:
    """Yield the longest runs of events whose offsets follow each other."""
    if not events or events[-1].offset - events[0].offset == len(events) - 1:
        if events:
            yield events
        return
    start = 0
    for at, (event, after) in enumerate(pairwise(events), 1):
        if after.offset != event.offset + 1:
            yield events[start:at]
            start = at
    yield events[start:]
