"""The newest lines of a topic, kept in memory so that delivering them reads no file."""

from collections import deque
from typing import Final

import msgspec

from broker.protocol.event_lines import line_id

__all__ = ["RecentLines"]

_KEEP_SHARE: Final = 0.75


class RecentLines:
    """The lines from offset `first` on, about `bytes_max` bytes of them; the oldest leave when there are more."""

    def __init__(self, first: int, bytes_max: int) -> None:
        self.first = first
        self.bytes_max = bytes_max
        self.size = 0
        self._lines: list[bytes] = []
        # (count, bytes) of what came together and leaves together
        self._batches: deque[tuple[int, int]] = deque()

    @property
    def mean_bytes(self) -> int:
        """The mean length of a line, at least 1."""
        return max(1, self.size // len(self._lines)) if self._lines else 1

    def extend(self, first: int, lines: list[bytes]) -> None:
        """Keep the lines of the offsets from `first` on; a gap before `first` forgets what was there."""
        if first != self.first + len(self._lines):
            self._lines.clear()
            self._batches.clear()
            self.first, self.size = first, 0
        size = sum(map(len, lines))
        self._lines += lines
        self._batches.append((len(lines), size))
        self.size += size
        if self.size > self.bytes_max:
            self._drop_oldest()

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

    def _drop_oldest(self) -> None:
        gone = 0
        while self.size > self.bytes_max * _KEEP_SHARE:
            count, size = self._batches.popleft()
            gone += count
            self.size -= size
        del self._lines[:gone]
        self.first += gone
