"""The priorities of consecutive events, one byte each: the smallest form that gives the offsets of each priority."""

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import compress
from typing import Final

__all__ = ["Stretch"]

_DECODED: Final = 64
"""How many decoded lists of offsets are cached, about 8 MB. A reader uses one list for each priority at a time."""
_RARE: Final = 100
"""If less than one event in this number has a priority, a search for each is faster than a check of all events."""

_ONLY: Final = [bytes(priority == wanted for priority in range(256)) for wanted in range(256)]


class Stretch:
    """The event at offset `first` + i has priority ``priorities[i]``. Immutable, and compared by identity."""

    __slots__ = ("first", "priorities")

    def __init__(self, first: int, priorities: bytes) -> None:
        self.first = first
        self.priorities = priorities

    @property
    def next(self) -> int:
        """The offset after the last event."""
        return self.first + len(self.priorities)

    @property
    def all_offsets(self) -> range:
        """The offsets of all events, in order."""
        return range(self.first, self.next)

    def cut(self, first: int, next_: int) -> "Stretch":
        """Return the part with the offsets `first` … `next_` - 1. It may be empty or the whole stretch."""
        if first <= self.first and next_ >= self.next:
            return self
        start = max(first, self.first)
        return Stretch(start, self.priorities[start - self.first : max(next_ - self.first, 0)])

    def parts(self, length: int) -> "Iterator[Stretch]":
        """Yield the stretch in parts of up to `length` events."""
        for start in range(0, len(self.priorities), length):
            yield Stretch(self.first + start, self.priorities[start : start + length])

    def by_priority(self) -> dict[int, "array[int]"]:
        """Return the offsets of each priority that occurs, in order."""
        found = set(self.priorities)
        if len(found) == 1:
            return {found.pop(): array("Q", self.all_offsets)}
        return {priority: self.pick(priority) for priority in found}

    def pick(self, priority: int) -> "array[int]":
        """Return the offsets of a priority, in order, by checking each event."""
        return array("Q", compress(self.all_offsets, self.priorities.translate(_ONLY[priority])))

    def count_before(self, offset: int, priority: int) -> int:
        """Return how many events of a priority have offsets below `offset`."""
        return self.priorities.count(priority, 0, max(offset - self.first, 0))

    def offsets(self, priority: int) -> Sequence[int]:
        """Return the offsets of a priority, in order. The most recently used results are cached."""
        return _offsets(self, priority)


@lru_cache(maxsize=_DECODED)
def _offsets(stretch: Stretch, priority: int) -> Sequence[int]:
    count = stretch.priorities.count(priority)
    if count == len(stretch.priorities):
        return stretch.all_offsets
    if count * _RARE < len(stretch.priorities):
        return array("Q", _found(stretch, priority, count))
    return stretch.pick(priority)


def _found(stretch: Stretch, priority: int, count: int) -> Iterator[int]:
    """Yield the offsets of a priority by searching for each of them."""
    at = -1
    for _ in range(count):
        at = stretch.priorities.index(priority, at + 1)
        yield stretch.first + at
