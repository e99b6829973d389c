"""A topic's log: its segments in order, the last of which is written to.

Always true: offsets only grow; a new segment exists, with its name on the disk, before anything is written behind the
old one, and before an old one is removed; nothing that starts up deletes a line that was confirmed. Between two segments
offsets may be missing, where a file was lost.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from broker.files import sync_directory
from broker.log.damage import Damage
from broker.log.retention import Span
from broker.log.segment import Batch, Segment
from broker.log.stretch import Stretch

__all__ = ["CommitLog", "Recovery"]

SEGMENT_BYTES: Final = 64 << 20
_NAME_DIGITS: Final = 20


class Recovery(NamedTuple):
    """What opening a log found: bytes cut behind the last event, indexes made again, damaged and missing events."""

    cut_bytes: int
    rebuilt: int
    damaged: int
    missing: int


class _Segments:
    """The segments at one moment; never changed, so that a reader needs no lock and keeps the files it reads open."""

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        self.firsts = [segment.first for segment in segments]
        self.last = segments[-1]

    def holding(self, offset: int) -> Segment:
        """The segment in which an offset stands, if it is there."""
        return self.all[max(0, bisect_right(self.firsts, offset) - 1)]


class CommitLog:
    """The segments of one folder. Reading is safe from any thread, and so is `forget_below` beside `append`."""

    def __init__(self, directory: Path, *, segment_bytes: int = SEGMENT_BYTES, is_synced: bool = True) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.is_synced = is_synced
        if not directory.exists():
            directory.mkdir(parents=True)
            sync_directory(directory.parent)
        self.recovery = Recovery(0, 0, 0, 0)
        self._segments = _Segments(self._open_segments())
        self._is_tail_spoilt = False
        # Held while the list of segments or the last one's end changes.
        self._changing = Lock()
        sync_directory(directory)

    @property
    def earliest(self) -> int:
        """The lowest offset that is still there (or `next` where there is none)."""
        return self._segments.firsts[0]

    @property
    def next(self) -> int:
        """The offset behind the last written event."""
        return self._segments.last.next

    @property
    def size(self) -> int:
        """Bytes of all event lines."""
        return sum(segment.size for segment in self._segments.all)

    @property
    def last_timestamp(self) -> int:
        """When the newest event was stored (ms), 0 where there is none."""
        newest_first = reversed(self._segments.all)
        return next((segment.last_timestamp for segment in newest_first if segment.next > segment.first), 0)

    def append(self, batch: Batch) -> None:
        """Write a batch and wait for the disk; rolls to a new segment where the last is full. Raises OSError."""
        with self._changing:
            if self._is_tail_spoilt:
                self._give_up_tail()
            if self._segments.last.size >= self.segment_bytes:
                self._roll(self.next)
            try:
                self._segments.last.append(batch, is_synced=self.is_synced)
            except OSError:
                self._is_tail_spoilt = True
                # Should the process end before the next append, nothing that was refused is to be found.
                with suppress(OSError):
                    self._segments.last.cut_tail()
                raise

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Read whole lines from the first existing offset ≥ `first`.

        Returns up to `count` lines of no more than about `bytes_max` bytes, the offset behind the last one looked at,
        and the damaged ones among them. An offset at or behind `next` gives no lines.
        """
        segments = self._segments
        first = max(first, segments.firsts[0])
        lines: list[bytes] = []
        damaged: list[Damage] = []
        for segment in segments.all[bisect_right(segments.firsts, first) - 1 :]:
            first = max(first, segment.first)
            while first < segment.next and count > 0 and bytes_max > 0:
                more, broken = segment.read(first, count, bytes_max)
                lines += more
                damaged += broken
                first += len(more) + len(broken)
                count -= len(more) + len(broken)
                bytes_max -= sum(map(len, more))
                if first < segment.next:
                    return lines, first, damaged
            if count <= 0 or bytes_max <= 0:
                break
        return lines, first, damaged

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Read single lines, `offsets` being in order; damaged ones and those not there are missing in the result."""
        segments = self._segments
        found: dict[int, bytes] = {}
        at = bisect_left(offsets, segments.firsts[0])
        while at < len(offsets):
            segment = segments.holding(offsets[at])
            end = bisect_left(offsets, segment.next, at)
            found |= segment.pick(offsets[at:end])
            at = max(end, at + 1)
        return found

    def stretches(self, first: int) -> list[Stretch]:
        """Return the priorities of the events from offset `first` to the end, from the index files."""
        return [segment.stretch(first) for segment in self._segments.all if segment.next > first]

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`, 0 where it is not there."""
        segment = self._segments.holding(offset)
        return segment.priority_of(offset) if segment.first <= offset < segment.next else 0

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset stored at or after `time_ms`, `next` where there is none."""
        for segment in self._segments.all:
            if segment.last_timestamp >= time_ms:
                return segment.offset_at(time_ms)
        return self.next

    def spans(self) -> list[Span]:
        """Return the parts that `forget_below` could remove, in order."""
        return [Span(one.next, one.size, one.last_timestamp) for one in self._segments.all[:-1]]

    def end_older(self, time_ms: int) -> None:
        """Close the last segment if all its events were stored before `time_ms`, so that it can go. Raises OSError."""
        with self._changing:
            last = self._segments.last
            if last.next > last.first and last.last_timestamp < time_ms and not self._is_tail_spoilt:
                self._roll(last.next)

    def forget_below(self, offset: int) -> None:
        """Remove the closed segments that lie below `offset` as a whole. Raises OSError."""
        with self._changing:
            segments = self._segments.all
            count = sum(segment.next <= offset for segment in segments[:-1])
            self._segments = _Segments(segments[count:])
        for segment in segments[:count]:
            segment.remove()
            # One after the other, so that a power cut leaves no gap among the old ones.
            sync_directory(self.directory)

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`, which must not be lower than `next`, since those between were given before. Raises OSError."""
        with self._changing:
            self._roll(offset)

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments.all:
            segment.close()

    def _open_segments(self) -> list[Segment]:
        names = [
            path for path in self.directory.glob("*.jsonl") if len(path.stem) == _NAME_DIGITS and path.stem.isdecimal()
        ]
        firsts = sorted(int(path.stem) for path in names)
        segments = [Segment(self.directory, first) for first in firsts or [0]]
        cut, rebuilt, damaged = 0, 0, 0
        for number, segment in enumerate(segments, 1):
            limit = segments[number].first if number < len(segments) else None
            if limit is None or not segment.open_sealed(limit):
                recovered = segment.recover(limit)
                cut += recovered.cut_bytes
                rebuilt += recovered.is_index_rebuilt
                damaged += recovered.damaged
        missing = sum(max(0, after.first - before.next) for before, after in pairwise(segments))
        self.recovery = Recovery(cut, rebuilt, damaged, missing)
        for index in self.directory.glob("*.index"):
            if index.stem.isdecimal() and int(index.stem) not in firsts and firsts:
                index.unlink()
        return segments

    def _give_up_tail(self) -> None:
        """End a segment whose write or fsync failed: what it holds unconfirmed is cut, and writing goes on in a new one."""
        tail = self._segments.last
        if tail.next > tail.first:
            self._roll(tail.next)
        else:
            tail.seal()
        self._is_tail_spoilt = False

    def _roll(self, first: int) -> None:
        self._segments.last.seal()
        added = Segment(self.directory, first)
        try:
            sync_directory(self.directory)
        except OSError:
            # Nothing may be written to a file whose name a power cut could take.
            added.close()
            with suppress(OSError):
                added.remove()
            raise
        self._segments = _Segments([*self._segments.all, added])
