"""A taken event's place in its lane as one number, so that neighbours in a lane are neighbours as numbers.

A slot is the priority above the lane's position. Settling many events then comes to few runs, found without looking
at each: a sorted list whose ends differ by its length less one holds every number between them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["first_slot", "priority_of", "runs", "stray_slot"]

_PRIORITY_SHIFT: Final = 56
# Lanes made longer at their head have negative positions; strays stand below all of these.
_ORIGIN: Final = 1 << 48


def first_slot(priority: int, position: int) -> int:
    """Return the slot of `position` in the lane of `priority`; the next position has the next slot."""
    return (priority << _PRIORITY_SHIFT) + _ORIGIN + position


def stray_slot(priority: int, number: int) -> int:
    """Return a slot for an event whose position is not known; no two strays are neighbours."""
    return (priority << _PRIORITY_SHIFT) + 2 * number


def priority_of(slot: int) -> int:
    """Return the priority of a slot's event."""
    return slot >> _PRIORITY_SHIFT


def runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs (first, last) of neighbours in sorted `slots`."""
    if not slots:
        return
    if slots[-1] - slots[0] == len(slots) - 1:
        yield slots[0], slots[-1]
        return
    middle = len(slots) // 2
    left, right = list(runs(slots[:middle])), list(runs(slots[middle:]))
    if left[-1][1] + 1 == right[0][0]:
        left[-1] = (left[-1][0], right.pop(0)[1])
    yield from left
    yield from right
