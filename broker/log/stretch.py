"""The priorities of neighbouring events, a byte for each: the smallest form of their places in the lanes."""

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import compress
from typing import Final

__all__ = ["Stretch"]

_DECODED: Final = 64
"""So many lanes of stretches stay decoded, about 8 MB of numbers; a reader needs one for each priority at its place."""
_RARE: Final = 100
"""Where fewer than one event of so many has a priority, searching for each is quicker than looking at all."""

_ONLY: Final = [bytes(priority == wanted for priority in range(256)) for wanted in range(256)]


class Stretch:
    """The event at offset `first` + i has priority ``priorities[i]``. Never changed; equal only to itself."""

    __slots__ = ("first", "priorities")

    def __init__(self, first: int, priorities: bytes) -> None:
        self.first = first
        self.priorities = priorities

    @property
    def next(self) -> int:
        """The offset behind the last one."""
        return self.first + len(self.priorities)

    @property
    def all_offsets(self) -> range:
        """The offsets of all its events."""
        return range(self.first, self.next)

    def cut(self, first: int, next_: int) -> "Stretch":
        """Return the part with offsets `first` … `next_` - 1, which may be all or nothing of it."""
        if first <= self.first and next_ >= self.next:
            return self
        start = max(first, self.first)
        return Stretch(start, self.priorities[start - self.first : max(next_ - self.first, 0)])

    def parts(self, length: int) -> "Iterator[Stretch]":
        """Yield it in parts of up to `length` events."""
        for start in range(0, len(self.priorities), length):
            yield Stretch(self.first + start, self.priorities[start : start + length])

    def by_priority(self) -> dict[int, "array[int]"]:
        """Return the offsets of each priority that stands here, in order."""
        found = set(self.priorities)
        if len(found) == 1:
            return {found.pop(): array("Q", self.all_offsets)}
        return {priority: self.pick(priority) for priority in found}

    def pick(self, priority: int) -> "array[int]":
        """Return the offsets of a priority, in order, by looking at each event."""
        return array("Q", compress(self.all_offsets, self.priorities.translate(_ONLY[priority])))

    def count_before(self, offset: int, priority: int) -> int:
        """Return how many events of a priority stand before `offset`."""
        return self.priorities.count(priority, 0, max(offset - self.first, 0))

    def offsets(self, priority: int) -> Sequence[int]:
        """Return the offsets of a priority, in order. Those of the stretches asked for last are kept."""
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
