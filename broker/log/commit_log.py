"""A topic's log: its segments in order, the last of which is written to.

Always true: offsets only grow; a new segment exists, with its name on the disk, before anything is written behind the
old one; nothing that starts up deletes a line that was confirmed.
"""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from broker.files import sync_directory
from broker.log.segment import Batch, Damage, Segment

__all__ = ["CommitLog", "Recovery"]

SEGMENT_BYTES = 64 << 20


class Recovery(NamedTuple):
    """What opening a log had to mend: bytes cut from a torn tail, and segments whose index was made again."""

    cut_bytes: int
    rebuilt: int


class CommitLog:
    """The segments of one folder. Reading is safe from other threads than the one that appends."""

    def __init__(self, directory: Path, *, segment_bytes: int = SEGMENT_BYTES, is_synced: bool = True) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.is_synced = is_synced
        directory.mkdir(parents=True, exist_ok=True)
        self.recovery = Recovery(0, 0)
        self._segments = self._open_segments()
        self._is_tail_spoilt = False
        self._firsts = [segment.first for segment in self._segments]
        sync_directory(directory)

    @property
    def earliest(self) -> int:
        """The lowest offset that is still there (or `next` where there is none)."""
        return self._firsts[0]

    @property
    def next(self) -> int:
        """The offset behind the last written event."""
        return self._segments[-1].next

    @property
    def size(self) -> int:
        """Bytes of all event lines."""
        return sum(segment.size for segment in self._segments)

    @property
    def last_timestamp(self) -> int:
        """When the newest event was stored (ms), 0 where there is none."""
        return next((segment.last_timestamp for segment in reversed(self._segments) if segment.next > segment.first), 0)

    def append(self, batch: Batch) -> None:
        """Write a batch and wait for the disk; rolls to a new segment where the last is full. Raises OSError."""
        if self._is_tail_spoilt:
            self._give_up_tail()
        if self._segments[-1].size >= self.segment_bytes:
            self._add_segment(self.next)
        try:
            self._segments[-1].append(batch, is_synced=self.is_synced)
        except OSError:
            self._is_tail_spoilt = True
            raise

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Read whole lines from the first existing offset ≥ `first`.

        Returns up to `count` lines of no more than about `bytes_max` bytes, the offset behind the last one looked at,
        and the damaged ones among them. An offset at or behind `next` gives no lines.
        """
        first = max(first, self.earliest)
        lines: list[bytes] = []
        damaged: list[Damage] = []
        while count > 0 and bytes_max > 0 and first < self.next:
            segment = self._segment_of(first)
            more, broken = segment.read(first, count, bytes_max)
            lines += more
            damaged += broken
            first += len(more) + len(broken)
            count -= len(more) + len(broken)
            bytes_max -= sum(map(len, more))
            if first < segment.next:
                break
        return lines, first, damaged

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Read single lines, `offsets` being in order and there; damaged ones are missing in the result."""
        found: dict[int, bytes] = {}
        at = 0
        while at < len(offsets):
            segment = self._segment_of(offsets[at])
            end = bisect_left(offsets, segment.next, at)
            found |= segment.pick(offsets[at:end])
            at = end
        return found

    def lanes(self, first: int) -> dict[int, "array[int]"]:
        """Return the offsets from `first` to the end by priority, from the index files."""
        lanes: dict[int, array[int]] = {}
        for segment in self._segments:
            if segment.next > first:
                for priority, offsets in segment.lanes(first).items():
                    lanes.setdefault(priority, array("Q")).extend(offsets)
        return lanes

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`, which must be there."""
        return self._segment_of(offset).priority_of(offset)

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset stored at or after `time_ms`, `next` where there is none."""
        for segment in self._segments:
            if segment.last_timestamp >= time_ms:
                return segment.offset_at(time_ms)
        return self.next

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[bisect_right(self._firsts, offset) - 1]

    def _open_segments(self) -> list[Segment]:
        firsts = sorted(int(path.stem) for path in self.directory.glob("*.jsonl") if path.stem.isdecimal())
        segments = [Segment(self.directory, first) for first in firsts or [0]]
        cut, rebuilt = 0, 0
        for segment in segments:
            if segment is segments[-1] or not segment.open_closed():
                recovered = segment.recover()
                cut += recovered.cut_bytes
                rebuilt += recovered.is_index_rebuilt
        self.recovery = Recovery(cut, rebuilt)
        return segments

    def _give_up_tail(self) -> None:
        """End a segment whose write or fsync failed: what it holds unconfirmed is cut, and writing goes on in a new one."""
        tail = self._segments[-1]
        os.truncate(tail.path, tail.size)
        if tail.next > tail.first:
            self._add_segment(tail.next)
        self._is_tail_spoilt = False

    def _add_segment(self, first: int) -> None:
        self._segments.append(Segment(self.directory, first))
        self._firsts.append(first)
        sync_directory(self.directory)
