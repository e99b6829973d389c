"""A set of offsets, a bit each: priorities hand events out in any order, so ranges would fall into countless pieces."""

from collections.abc import Iterable, Iterator, Sequence
from operator import eq

__all__ = ["OffsetSet"]

_SPAN = 1 << 16
"""Offsets a block; 8 KiB of bits, small enough that a sparse topic costs little."""

_RUN_LEAST = 16
"""Offsets in a row from which whole bytes pay."""

_FULL = bytearray(b"\xff" * (_SPAN // 8))
"""Every completed block is this one object, so a stream received whole costs next to nothing."""


class OffsetSet:
    """The offsets of one topic that something happened to. Memory is at most a bit an offset of the span in use."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self._counts: dict[int, int] = {}
        self.first: int | None = None
        self.last: int | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, offset: int) -> bool:
        block = self._blocks.get(offset >> 16)
        return block is not None and bool(block[(offset & 0xFFFF) >> 3] & (1 << (offset & 7)))

    def add(self, offset: int) -> bool:
        """Put `offset` (≥ 0) in. Returns whether it was new."""
        return not self.add_all([offset])

    def add_all(self, offsets: Sequence[int]) -> list[int]:
        """Put all of `offsets` (≥ 0, in any order) in. Returns those that were in already, in their order.

        An ascending run without holes, as one priority gives it, costs by the byte and not by the offset.
        """
        if not offsets:
            return []
        first, stop = offsets[0], offsets[-1] + 1
        if stop - first == len(offsets) > _RUN_LEAST and all(map(eq, offsets, range(first, stop))):
            again = self._add_run(first, stop)
            self._widen(first, stop - 1)
        else:
            again = self._add_each(offsets)
            self._widen(min(offsets), max(offsets))
        self._count += len(offsets) - len(again)
        return again

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield what is in, ascending, as half-open ranges ``(start, stop)``."""
        if self.first is None or self.last is None:
            return
        stop = self.first
        for start, end in self.missing(self.first, self.last + 1):
            if start > stop:
                yield stop, start
            stop = end
        yield stop, self.last + 1

    def missing(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the half-open ranges of [`start`, `stop`) that are not in, ascending."""
        hole: int | None = None
        at = start
        while at < stop:
            state, end = self._run(at, stop)
            if state and hole is not None:
                yield hole, at
                hole = None
            elif not state and hole is None:
                hole = at
            at = end
        if hole is not None:
            yield hole, stop

    def count_missing(self, start: int, stop: int) -> int:
        """Count the offsets of [`start`, `stop`) that are not in."""
        return sum(end - begin for begin, end in self.missing(start, stop))

    def _widen(self, first: int, last: int) -> None:
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)

    def _add_run(self, first: int, stop: int) -> list[int]:
        again: list[int] = []
        while first < stop:
            end = min(stop, ((first >> 16) + 1) << 16)
            again += self._add_run_to_block(first, end)
            first = end
        return again

    def _add_run_to_block(self, first: int, stop: int) -> list[int]:
        """Put [`first`, `stop`), which lies in one block, in: whole bytes at once where they are empty."""
        number = first >> 16
        block = self._block(number)
        whole_first, whole_stop = (first + 7) & ~7, stop & ~7
        if whole_first >= whole_stop:
            return self._add_each(range(first, stop))
        low, high = (whole_first & 0xFFFF) >> 3, ((whole_stop - 1) & 0xFFFF) + 1 >> 3
        if block.count(0, low, high) < high - low:
            return self._add_each(range(first, stop))
        block[low:high] = _FULL[low:high]
        self._fill(number, whole_stop - whole_first)
        return self._add_each(range(first, whole_first)) + self._add_each(range(whole_stop, stop))

    def _add_each(self, offsets: Iterable[int]) -> list[int]:
        again: list[int] = []
        number, added = -1, 0
        block = bytearray()
        for offset in offsets:
            if offset >> 16 != number:
                self._fill(number, added)
                number, added = offset >> 16, 0
                block = self._block(number)
            at, bit = (offset & 0xFFFF) >> 3, 1 << (offset & 7)
            byte = block[at]
            if byte & bit:
                again.append(offset)
            else:
                block[at] = byte | bit
                added += 1
        self._fill(number, added)
        return again

    def _block(self, number: int) -> bytearray:
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = bytearray(_SPAN // 8)
            self._counts[number] = 0
        return block

    def _fill(self, number: int, added: int) -> None:
        """Count what was added to a block; a completed one is let go for the one that all share."""
        if added:
            self._counts[number] += added
            if self._counts[number] == _SPAN:
                self._blocks[number] = _FULL

    def _run(self, at: int, stop: int) -> tuple[bool, int]:
        """Tell whether `at` is in, and up to where that surely stays so: a whole block, a byte or one offset on."""
        block = self._blocks.get(at >> 16)
        if block is None or block is _FULL:
            return block is not None, min(stop, ((at >> 16) + 1) << 16)
        byte = block[(at & 0xFFFF) >> 3]
        if byte in (0, 0xFF):
            return byte != 0, min(stop, (at & ~7) + 8)
        return bool(byte & (1 << (at & 7))), at + 1
