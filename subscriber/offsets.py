"""A set of offsets, a bit each: priorities hand events out in any order, so ranges would fall into countless pieces."""

from collections.abc import Iterator

__all__ = ["OffsetSet"]

_SPAN = 1 << 16
"""Offsets a block; 8 KiB of bits, small enough that a sparse topic costs little."""

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
        number = offset >> 16
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = bytearray(_SPAN // 8)
            self._counts[number] = 0
        at, bit = (offset & 0xFFFF) >> 3, 1 << (offset & 7)
        if block[at] & bit:
            return False
        block[at] |= bit
        self._note(number, offset)
        return True

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

    def _note(self, number: int, offset: int) -> None:
        self._count += 1
        self._counts[number] += 1
        if self._counts[number] == _SPAN:
            self._blocks[number] = _FULL
        if self.first is None or offset < self.first:
            self.first = offset
        if self.last is None or offset > self.last:
            self.last = offset

    def _run(self, at: int, stop: int) -> tuple[bool, int]:
        """Tell whether `at` is in, and up to where that surely stays so: a whole block, a byte or one offset on."""
        block = self._blocks.get(at >> 16)
        if block is None or block is _FULL:
            return block is not None, min(stop, ((at >> 16) + 1) << 16)
        byte = block[(at & 0xFFFF) >> 3]
        if byte in (0, 0xFF):
            return byte != 0, min(stop, (at & ~7) + 8)
        return bool(byte & (1 << (at & 7))), at + 1
