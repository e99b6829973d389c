"""A log that ends with its process: the promise ``memory``, and the double for tests of the core."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from broker.log.index import split_by_priority
from broker.log.segment import Batch, Damage

__all__ = ["MemoryLog"]


class MemoryLog:
    """All lines in a list."""

    earliest = 0

    def __init__(self) -> None:
        self.size = 0
        self.last_timestamp = 0
        self._lines: list[bytes] = []
        self._priorities = bytearray()
        self._timestamps: list[int] = []

    @property
    def next(self) -> int:
        """The offset behind the last written event."""
        return len(self._lines)

    def append(self, batch: Batch) -> None:
        """Keep a batch."""
        self._lines += batch.lines
        self._priorities += bytes(batch.priorities)
        self._timestamps += batch.timestamps
        self.size += sum(map(len, batch.lines))
        self.last_timestamp = batch.timestamps[-1]

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Return up to `count` lines of about `bytes_max` bytes from `first` on, and the offset behind them."""
        lines: list[bytes] = []
        size = 0
        for line in self._lines[first : first + count]:
            if lines and size + len(line) > bytes_max:
                break
            lines.append(line)
            size += len(line)
        return lines, first + len(lines), []

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Return single lines."""
        return {offset: self._lines[offset] for offset in offsets}

    def lanes(self, first: int) -> dict[int, "array[int]"]:
        """Return the offsets from `first` to the end by priority."""
        priorities = bytes(self._priorities[first:])
        return split_by_priority(first, priorities) if priorities else {}

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`."""
        return self._priorities[offset]

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset stored at or after `time_ms`, `next` where there is none."""
        return bisect_left(self._timestamps, time_ms)

    def close(self) -> None:
        """Nothing is open."""
