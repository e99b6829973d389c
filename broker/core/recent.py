"""The newest lines of the topics, kept in memory so that delivering them reads no file."""

from collections import deque
from typing import Final

import msgspec

from broker.protocol.event_lines import line_id

__all__ = ["Memory", "RecentLines"]

_GIVEN_SHARE: Final = 8


class Memory:
    """What all topics together may keep: about `bytes_max` bytes of lines. The topic that has most gives first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.holders: list[RecentLines] = []

    def take(self, size: int) -> None:
        """Note `size` bytes more, and have the largest holder give some if that is too much."""
        self.used += size
        while self.used > self.bytes_max:
            self.used -= max(self.holders, key=lambda holder: holder.size).drop_oldest(self.bytes_max // _GIVEN_SHARE)


class RecentLines:
    """The lines of one topic from offset `first` on; the oldest leave when all topics together have too many."""

    def __init__(self, first: int, memory: Memory) -> None:
        self.first = first
        self.size = 0
        self._memory = memory
        self._lines: list[bytes] = []
        # (count, bytes) of what came together and leaves together
        self._batches: deque[tuple[int, int]] = deque()
        memory.holders.append(self)

    @property
    def mean_bytes(self) -> int:
        """The mean length of a line, at least 1."""
        return max(1, self.size // len(self._lines)) if self._lines else 1

    def extend(self, first: int, lines: list[bytes]) -> None:
        """Keep the lines of the offsets from `first` on; a gap before `first` forgets what was there."""
        if first != self.first + len(self._lines):
            self._memory.used -= self.drop_oldest(self.size)
            self.first = first
        size = sum(map(len, lines))
        self._lines += lines
        self._batches.append((len(lines), size))
        self.size += size
        self._memory.take(size)

    def lines(self, offsets: list[int]) -> list[bytes] | None:
        """Return the lines of `offsets` (not empty), or None where one of them is not here any more."""
        start = self.first
        if min(offsets) < start:
            return None
        count = len(offsets)
        if offsets[-1] - offsets[0] == count - 1 and (
            count < 3 or offsets == list(range(offsets[0], offsets[0] + count))
        ):
            return self._lines[offsets[0] - start : offsets[0] - start + count]
        return [self._lines[offset - start] for offset in offsets]

    def find_id(self, wanted: str) -> int | None:
        """Return the offset of the newest event here with the id `wanted`."""
        encoded = b'"id":%b' % msgspec.json.encode(wanted)
        for number in range(len(self._lines) - 1, -1, -1):
            if encoded in self._lines[number] and line_id(self._lines[number]) == wanted:
                return self.first + number
        return None

    def drop_oldest(self, size: int) -> int:
        """Forget the oldest lines, at least `size` bytes of them if there are so many; returns how many bytes."""
        count, dropped = 0, 0
        while self._batches and dropped < size:
            lines, line_bytes = self._batches.popleft()
            count += lines
            dropped += line_bytes
        del self._lines[:count]
        self.first += count
        self.size -= dropped
        return dropped
