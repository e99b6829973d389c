"""The newest lines of the topics, kept in memory so that delivering them reads no file."""

from collections import deque
from typing import Final

__all__ = ["Memory", "RecentLines"]

_GIVEN_SHARE: Final = 8


class Memory:
    """The memory for the lines of all topics, about `bytes_max` bytes. The topic with the most bytes drops lines first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.holders: list[RecentLines] = []

    def take(self, size: int) -> None:
        """Add `size` bytes to the total. If it is too large, make the topic with the most bytes drop its oldest lines."""
        self.used += size
        while self.used > self.bytes_max:
            self.used -= max(self.holders, key=lambda holder: holder.size).drop_oldest(self.bytes_max // _GIVEN_SHARE)


class RecentLines:
    """The lines of one topic from offset `first` on. The oldest are dropped when all topics together have too many."""

    def __init__(self, first: int, memory: Memory) -> None:
        self.first = first
        self.size = 0
        self._memory = memory
        self._lines: list[bytes] = []
        # (count, bytes) of the lines that were added together and are dropped together
        self._batches: deque[tuple[int, int]] = deque()
        memory.holders.append(self)

    @property
    def mean_bytes(self) -> int:
        """The mean length of a line, at least 1."""
        return max(1, self.size // len(self._lines)) if self._lines else 1

    def extend(self, first: int, lines: list[bytes]) -> None:
        """Keep the lines of the offsets from `first` on. After a gap, the lines before it are forgotten."""
        if first != self.first + len(self._lines):
            self._memory.used -= self.drop_oldest(self.size)
            self.first = first
        size = sum(map(len, lines))
        self._lines += lines
        self._batches.append((len(lines), size))
        self.size += size
        self._memory.take(size)

    def lines(self, offsets: list[int]) -> list[bytes] | None:
        """Return the lines of `offsets` (not empty), or None if one of them is no longer in memory."""
        start = self.first
        if min(offsets) < start:
            return None
        count = len(offsets)
        if offsets[-1] - offsets[0] == count - 1 and (
            count < 3 or offsets == list(range(offsets[0], offsets[0] + count))
        ):
            return self._lines[offsets[0] - start : offsets[0] - start + count]
        return [self._lines[offset - start] for offset in offsets]

    def drop_below(self, offset: int) -> None:
        """Forget the lines below an offset."""
        dropped = 0
        while self._batches and self.first < offset:
            count, size = self._batches.popleft()
            if count > offset - self.first:
                part = sum(map(len, self._lines[: offset - self.first]))
                self._batches.appendleft((count - (offset - self.first), size - part))
                count, size = offset - self.first, part
            del self._lines[:count]
            self.first += count
            dropped += size
        self.size -= dropped
        self._memory.used -= dropped

    def forget(self) -> None:
        """Forget all lines of a dropped topic."""
        self._memory.used -= self.drop_oldest(self.size)
        self._memory.holders.remove(self)

    def drop_oldest(self, size: int) -> int:
        """Forget the oldest lines, at least `size` bytes if there are that many. Return how many bytes."""
        count, dropped = 0, 0
        while self._batches and dropped < size:
            lines, line_bytes = self._batches.popleft()
            count += lines
            dropped += line_bytes
        del self._lines[:count]
        self.first += count
        self.size -= dropped
        return dropped
