"""A slot is the place of a taken event in its lane, as one number. Neighbours in a lane have consecutive numbers.

A slot has the priority in its high bits and the lane's position in its low bits. Therefore settled events form few runs, which
are found without looking at each number. A sorted list holds every number between its ends if these differ by the list's length
minus one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["Taken", "first_slot", "priority_of", "runs", "stray_slot"]

_PRIORITY_SHIFT: Final = 56
# A lane that was extended at its head has negative positions. The slots of strays are below all of these.
_ORIGIN: Final = 1 << 48
_FEW: Final = 64


class Taken(NamedTuple):
    """Neighbouring events of a lane: their offsets, and the slot of the first."""

    slot: int
    offsets: list[int]


def first_slot(priority: int, position: int) -> int:
    """Return the slot of `position` in the lane of `priority`; the next position has the next slot."""
    return (priority << _PRIORITY_SHIFT) + _ORIGIN + position


def stray_slot(priority: int, number: int) -> int:
    """Return a slot for a stray, an event whose position is not known.

    The numbers of two strays may be consecutive only if their offsets are.
    """
    return (priority << _PRIORITY_SHIFT) + number


def priority_of(slot: int) -> int:
    """Return the priority of a slot's event."""
    return slot >> _PRIORITY_SHIFT


def runs(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs (first, last) of consecutive numbers in sorted `slots`."""
    found: list[tuple[int, int]] = []
    if slots:
        _add_runs(slots, found)
    return found


def _add_runs(slots: Sequence[int], found: list[tuple[int, int]]) -> None:
    if slots[-1] - slots[0] == len(slots) - 1:
        _add_run(slots[0], slots[-1], found)
    elif len(slots) > _FEW:
        middle = len(slots) // 2
        _add_runs(slots[:middle], found)
        _add_runs(slots[middle:], found)
    else:
        first = last = slots[0]
        for slot in slots:
            if slot > last + 1:
                _add_run(first, last, found)
                first = slot
            last = slot
        _add_run(first, last, found)


def _add_run(first: int, last: int, found: list[tuple[int, int]]) -> None:
    if found and found[-1][1] + 1 == first:
        first, _ = found.pop()
    found.append((first, last))
