"""A log in memory, for the durability ``memory`` and for tests of the core. It is lost when the process ends."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from broker.log.batch import Batch
from broker.log.damage import Damage
from broker.log.dates import Dated, find_moment
from broker.log.log_id import new_log_id
from broker.log.retention import Span
from broker.log.stretch import Stretch

__all__ = ["MemoryLog"]

_SPAN_BYTES = 1 << 20


class MemoryLog:
    """Holds all lines in a list. Parts of about `span_bytes` bytes can be removed."""

    def __init__(self, *, span_bytes: int = _SPAN_BYTES) -> None:
        self.id = new_log_id()
        self.hidden_below = 0
        self.size = 0
        self.last_timestamp = 0
        self.last_arrived = 0
        self._span_bytes = span_bytes
        # The offset of the first line
        self._first = 0
        self._closed: list[Span] = []
        self._open_bytes = 0
        self._lines: list[bytes] = []
        self._priorities = bytearray()
        self._timestamps: list[int] = []
        # The offsets whose timestamp is lower than that of the previous event. Between two of them, a binary search works.
        self._breaks: list[int] = []

    @property
    def earliest(self) -> int:
        """The lowest offset that can be read, or `next` if there is none."""
        return max(self._first, self.hidden_below)

    @property
    def next(self) -> int:
        """The offset after the last written event."""
        return self._first + len(self._lines)

    def append(self, batch: Batch) -> None:
        """Add a batch to the end of the log."""
        if self._open_bytes >= self._span_bytes:
            self._close_span()
        if self._lines and batch.timestamps[0] < self.last_timestamp:
            self._breaks.append(batch.first)
        self._lines += batch.lines
        self._priorities += bytes(batch.priorities)
        self._timestamps += batch.timestamps
        size = sum(map(len, batch.lines))
        self.size += size
        self._open_bytes += size
        self.last_timestamp = batch.timestamps[-1]
        self.last_arrived = self.last_timestamp if batch.arrived_ms is None else batch.arrived_ms

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Return up to `count` lines of about `bytes_max` bytes from `first` on, and the offset after them."""
        first = max(first, self.earliest)
        lines: list[bytes] = []
        size = 0
        for line in self._lines[first - self._first : first - self._first + count]:
            if lines and size + len(line) > bytes_max:
                break
            lines.append(line)
            size += len(line)
        return lines, first + len(lines), []

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Return the lines at `offsets`. Missing lines are left out."""
        return {offset: self._lines[offset - self._first] for offset in offsets if offset >= self.earliest}

    def stretches(self, first: int) -> list[Stretch]:
        """Return the priorities of the events from offset `first` to the end."""
        first = max(first, self.earliest)
        priorities = bytes(self._priorities[first - self._first :])
        return [Stretch(first, priorities)] if priorities else []

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`, 0 if it is missing."""
        return self._priorities[offset - self._first] if self.earliest <= offset < self.next else 0

    def offset_at(self, time_ms: int, now_ms: int | None = None) -> int:
        """Return the first offset stored at or after `time_ms`, `next` if there is none. `now_ms` is the current time."""
        starts = [0, *(offset - self._first for offset in self._breaks if offset > self._first)]
        parts = list(pairwise([*starts, len(self._lines)])) if self._lines else []
        dated = [Dated(self._timestamps[start], self._timestamps[end - 1]) for start, end in parts]
        found = find_moment(
            dated, time_ms, now_ms, lambda number, at_ms: bisect_left(self._timestamps, at_ms, *parts[number])
        )
        return max(self._first + (found or 0), self.earliest)

    def spans(self) -> list[Span]:
        """Return the parts that `forget_below` could remove, in order."""
        return list(self._closed)

    def hide_below(self, offset: int) -> None:
        """Hide the events below `offset`. They stay stored until `forget_below`."""
        self.hidden_below = max(self.hidden_below, min(offset, self.next))

    def end_hidden(self) -> None:
        """Close the last part if all its events are hidden, so that it can be removed."""
        if self._open_bytes and self.next <= self.hidden_below:
            self._close_span()

    def end_older(self, time_ms: int) -> None:
        """Close the last part if all its events arrived before `time_ms`, so that it can be removed."""
        if self._open_bytes and self.last_arrived < time_ms:
            self._close_span()

    def forget_below(self, offset: int) -> None:
        """Remove each closed part whose events are all below `offset`."""
        while self._closed and self._closed[0].next <= offset:
            span = self._closed.pop(0)
            count = span.next - self._first
            del self._lines[:count], self._priorities[:count], self._timestamps[:count]
            self._first = span.next
            self.size -= span.size

    def skip_to(self, offset: int) -> None:
        """Continue at `offset`. Raises ValueError if the log holds events or `offset` is lower than its first one."""
        if self._lines or offset < self._first:
            raise ValueError(f"offset {offset} cannot follow {self.next - 1}")
        self._first = offset

    def set_aside(self, directory: Path) -> None:
        """Do nothing, since there is no folder."""

    def close(self) -> None:
        """Do nothing, since no file is open."""

    def _close_span(self) -> None:
        self._closed.append(Span(self.next, self._open_bytes, self.last_arrived))
        self._open_bytes = 0
