"""The segments of a log at one moment, and the reads that span several segments.

A `Segments` never changes, so readers need no lock. Retention may remove the files of some segments meanwhile.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from broker.log.damage import Damage
from broker.log.dates import Dated, find_moment
from broker.log.retention import Span
from broker.log.segment import Segment
from broker.log.stretch import Stretch

__all__ = ["Segments", "dated"]


class Segments:
    """One or more segments in the order of their offsets. New events are written to the last one."""

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        self.firsts = [segment.first for segment in segments]
        self.last = segments[-1]

    def holding(self, offset: int) -> Segment:
        """Return the last segment that begins at or before `offset`, or the first segment if none does."""
        return self.all[max(0, bisect_right(self.firsts, offset) - 1)]

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Read whole lines. See `CommitLog.read`."""
        first = max(first, self.firsts[0])
        lines: list[bytes] = []
        damaged: list[Damage] = []
        for segment in self.all[bisect_right(self.firsts, first) - 1 :]:
            first = max(first, segment.first)
            while first < segment.next and count > 0 and bytes_max > 0:
                try:
                    more, broken = segment.read(first, count, bytes_max)
                except FileNotFoundError:
                    # Retention removed the file meanwhile.
                    first = segment.next
                    break
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
        """Return the lines at `offsets`, which must be in order. Damaged and missing lines are left out."""
        found: dict[int, bytes] = {}
        at = bisect_left(offsets, self.firsts[0])
        while at < len(offsets):
            segment = self.holding(offsets[at])
            end = bisect_left(offsets, segment.next, at)
            with suppress(FileNotFoundError):
                found |= segment.pick(offsets[at:end])
            at = max(end, at + 1)
        return found

    def stretches(self, first: int) -> list[Stretch]:
        """Return the priorities of the events from offset `first` to the end, from the index files."""
        found: list[Stretch] = []
        for segment in self.all:
            if segment.next > first:
                with suppress(FileNotFoundError):
                    found.append(segment.stretch(first))
        return found

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`, 0 if it is missing."""
        segment = self.holding(offset)
        if segment.first <= offset < segment.next:
            with suppress(FileNotFoundError):
                return segment.priority_of(offset)
        return 0

    def offset_at(self, time_ms: int, now_ms: int | None = None) -> int:
        """Return the first offset stored at or after `time_ms`, the end if there is none. `now_ms` is the current time."""
        segments = [segment for segment in self.all if segment.size]
        found = find_moment([dated(segment) for segment in segments], time_ms, now_ms, partial(_search, segments))
        return self.firsts[0] if found is None else max(found, self.firsts[0])

    def spans(self) -> list[Span]:
        """Return the segments that may be removed, in order: all except the last."""
        return [Span(one.next, one.size, one.arrived_ms) for one in self.all[:-1]]


def dated(segment: Segment) -> Dated:
    """Return the timestamps of a segment's first and last event."""
    return Dated(segment.first_timestamp, segment.last_timestamp)


def _search(segments: Sequence[Segment], number: int, time_ms: int) -> int:
    try:
        return segments[number].offset_at(time_ms)
    except FileNotFoundError:
        # Retention removed the file meanwhile.
        return segments[number].next
