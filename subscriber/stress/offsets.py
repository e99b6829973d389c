"""A set of offsets with one bit for each. With priorities, offsets arrive in any order, so there would be too many ranges."""

from collections.abc import Iterable, Iterator, Sequence
from operator import eq

__all__ = ["OffsetSet"]

_SPAN = 1 << 16
"""The offsets in a block: 8 KiB of bits, small enough that a sparse topic takes little memory."""

_RUN_LEAST = 16
"""For a run of at least this many offsets, setting whole bytes is faster than setting single bits."""

_FULL = bytearray(b"\xff" * (_SPAN // 8))
"""All complete blocks are this one object, so a stream that was received whole takes almost no memory."""


class OffsetSet:
    """A set of offsets of one topic. It takes at most one bit per offset of the used span."""

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
        """Add `offset` (≥ 0). Returns whether it was new."""
        return not self.add_all([offset])

    def add_all(self, offsets: Sequence[int]) -> list[int]:
        """Add all `offsets` (≥ 0, in any order). Returns those that were in the set before, in their order.

        An ascending run without holes, which is usual with one priority, is added by whole bytes.
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
        """Yield the offsets in the set as ascending half-open ranges ``(start, stop)``."""
        if self.first is None or self.last is None:
            return
        stop = self.first
        for start, end in self.missing(self.first, self.last + 1):
            if start > stop:
                yield stop, start
            stop = end
        yield stop, self.last + 1

    def missing(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ascending half-open ranges of [`start`, `stop`) that are not in the set."""
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
        """Count the offsets of [`start`, `stop`) that are not in the set."""
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
        """Add [`first`, `stop`), which lies in one block; whole bytes that are empty are set together."""
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
        """Count offsets added to a block; a complete block is replaced by the shared one."""
        if added:
            self._counts[number] += added
            if self._counts[number] == _SPAN:
                self._blocks[number] = _FULL

    def _run(self, at: int, stop: int) -> tuple[bool, int]:
        """Return whether `at` is in the set, and an offset up to which this is the same for all offsets.

        It is the end of a block, the end of a byte, or the next offset.
        """
        block = self._blocks.get(at >> 16)
        if block is None or block is _FULL:
            return block is not None, min(stop, ((at >> 16) + 1) << 16)
        byte = block[(at & 0xFFFF) >> 3]
        if byte in (0, 0xFF):
            return byte != 0, min(stop, (at & ~7) + 8)
        return bool(byte & (1 << (at & 7))), at + 1
