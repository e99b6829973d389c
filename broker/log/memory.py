"""A log that ends with its process: the promise ``memory``, and the double for tests of the core."""

from bisect import bisect_left
from collections.abc import Sequence

from broker.log.damage import Damage
from broker.log.retention import Span
from broker.log.segment import Batch
from broker.log.stretch import Stretch

__all__ = ["MemoryLog"]

_SPAN_BYTES = 1 << 20


class MemoryLog:
    """All lines in a list, in parts of about `span_bytes` that can be forgotten."""

    def __init__(self, *, span_bytes: int = _SPAN_BYTES) -> None:
        self.earliest = 0
        self.size = 0
        self.last_timestamp = 0
        self._span_bytes = span_bytes
        self._closed: list[Span] = []
        self._open_bytes = 0
        self._lines: list[bytes] = []
        self._priorities = bytearray()
        self._timestamps: list[int] = []

    @property
    def next(self) -> int:
        """The offset behind the last written event."""
        return self.earliest + len(self._lines)

    def append(self, batch: Batch) -> None:
        """Keep a batch."""
        if self._open_bytes >= self._span_bytes:
            self._close_span()
        self._lines += batch.lines
        self._priorities += bytes(batch.priorities)
        self._timestamps += batch.timestamps
        size = sum(map(len, batch.lines))
        self.size += size
        self._open_bytes += size
        self.last_timestamp = batch.timestamps[-1]

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Return up to `count` lines of about `bytes_max` bytes from `first` on, and the offset behind them."""
        first = max(first, self.earliest)
        lines: list[bytes] = []
        size = 0
        for line in self._lines[first - self.earliest : first - self.earliest + count]:
            if lines and size + len(line) > bytes_max:
                break
            lines.append(line)
            size += len(line)
        return lines, first + len(lines), []

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Return single lines."""
        return {offset: self._lines[offset - self.earliest] for offset in offsets if offset >= self.earliest}

    def stretches(self, first: int) -> list[Stretch]:
        """Return the priorities of the events from offset `first` to the end."""
        first = max(first, self.earliest)
        priorities = bytes(self._priorities[first - self.earliest :])
        return [Stretch(first, priorities)] if priorities else []

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`, 0 where it is not there."""
        return self._priorities[offset - self.earliest] if self.earliest <= offset < self.next else 0

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset stored at or after `time_ms`, `next` where there is none."""
        return self.earliest + bisect_left(self._timestamps, time_ms)

    def spans(self) -> list[Span]:
        """Return the parts that `forget_below` could remove, in order."""
        return list(self._closed)

    def end_older(self, time_ms: int) -> None:
        """Close the last part if all its events were stored before `time_ms`, so that it can go."""
        if self._open_bytes and self.last_timestamp < time_ms:
            self._close_span()

    def forget_below(self, offset: int) -> None:
        """Remove the parts that lie below `offset` as a whole."""
        while self._closed and self._closed[0].next <= offset:
            span = self._closed.pop(0)
            count = span.next - self.earliest
            del self._lines[:count], self._priorities[:count], self._timestamps[:count]
            self.earliest = span.next
            self.size -= span.size

    def skip_to(self, offset: int) -> None:
        """Begin at `offset`; only a log with nothing in it can have lost what was given."""
        if self._lines or offset < self.earliest:
            raise ValueError(f"offset {offset} cannot follow {self.next - 1}")
        self.earliest = offset

    def close(self) -> None:
        """Nothing is open."""

    def _close_span(self) -> None:
        self._closed.append(Span(self.next, self._open_bytes, self.last_timestamp))
        self._open_bytes = 0
