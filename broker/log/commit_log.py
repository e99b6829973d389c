"""A topic's log: its segments in order. New events go to the last segment.

Always true:

- offsets only grow;
- the name of a new segment is on the disk before an event is written to it;
- the name of a new segment is on the disk before an old segment is removed;
- recovery deletes no confirmed line.

If a file was lost, offsets are missing between two segments.
"""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from broker.log.batch import Batch
from broker.log.damage import Damage
from broker.log.dates import arrivals
from broker.log.log_id import keep_log_id
from broker.log.names import index_paths, segment_paths
from broker.log.open_files import OpenFiles
from broker.log.retention import Span
from broker.log.segment import Segment
from broker.log.segments import Segments, dated
from broker.log.stretch import Stretch
from tweetwire.files import make_folder, refuse_other_kinds, sync_directory

__all__ = ["CommitLog", "Recovery"]

SEGMENT_BYTES: Final = 64 << 20


class Recovery(NamedTuple):
    """The findings of opening a log: bytes cut after the last event, rebuilt indexes, damaged and missing events.

    `lost_ids` is 1 if the file with the log's id was damaged, so that the log has a new id.
    """

    cut_bytes: int
    rebuilt: int
    damaged: int
    missing: int
    lost_ids: int = 0


class CommitLog:
    """The segments of one folder. Any thread may read, and one thread may call `forget_below` while another appends."""

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        is_synced: bool = True,
        files: OpenFiles | None = None,
        now_ms: int | None = None,
    ) -> None:
        """Open a log, or create it if it does not exist.

        `files` opens the segments' files. `now_ms` is the current time, or None if it is unknown. Raises OSError, and then
        no new folder is left.
        """
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.is_synced = is_synced
        self._files = OpenFiles() if files is None else files
        self.recovery = Recovery(0, 0, 0, 0)
        self.hidden_below = 0
        refuse_other_kinds(directory, is_folder=True)
        is_new = make_folder(directory)
        try:
            self.id, is_id_lost = keep_log_id(directory, is_new=is_new, is_synced=is_synced)
            self._segments = Segments(self._open_segments())
            self.recovery = self.recovery._replace(lost_ids=int(is_id_lost))
            self._date_segments(now_ms)
            sync_directory(directory)
        except OSError:
            if is_new:
                self._unmake()
            raise
        self._is_tail_spoilt = False
        self._is_set_aside = False
        # Held while files are removed or moved. It is taken before the next lock.
        self._removing = Lock()
        # Held while the list of segments or the end of the last segment changes.
        self._changing = Lock()

    @property
    def earliest(self) -> int:
        """The lowest offset that can be read, or `next` if the log is empty."""
        return max(self._segments.firsts[0], self.hidden_below)

    @property
    def next(self) -> int:
        """The offset after the last written event."""
        return self._segments.last.next

    @property
    def size(self) -> int:
        """The size of all event lines in bytes."""
        return sum(segment.size for segment in self._segments.all)

    @property
    def last_timestamp(self) -> int:
        """The newest event's timestamp (ms), 0 if the log is empty."""
        newest_first = reversed(self._segments.all)
        return next((segment.last_timestamp for segment in newest_first if segment.next > segment.first), 0)

    @property
    def last_arrived(self) -> int:
        """The time (ms) by the broker's clock at which the newest event arrived, 0 if the log is empty."""
        return max((segment.arrived_ms for segment in self._segments.all[-2:]), default=0)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments in order. The last one is open, all others are sealed."""
        return self._segments.all

    def append(self, batch: Batch) -> None:
        """Write a batch, to a new segment if the last one is full. Wait for the disk if `is_synced`. Raises OSError."""
        with self._changing:
            if self._is_tail_spoilt:
                self._give_up_tail()
            tail = self._segments.last
            # Timestamps never decrease within a segment, so that `offset_at` can use a binary search.
            if tail.size >= self.segment_bytes or (tail.size and batch.timestamps[0] < tail.last_timestamp):
                self._roll(self.next)
            try:
                self._segments.last.append(batch, is_synced=self.is_synced)
            except OSError:
                self._is_tail_spoilt = True
                # The process may end before the next append. Recovery must not find the refused events then.
                with suppress(OSError):
                    self._segments.last.cut_tail()
                raise

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Read whole lines from the first existing offset ≥ `first`.

        Returns up to `count` whole lines of about `bytes_max` bytes, the offset after the last line read, and the damaged
        lines. Returns no lines if `first` is `next` or higher.
        """
        return self._segments.read(max(first, self.hidden_below), count, bytes_max)

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Return the lines at `offsets`, which must be in order. Damaged and missing lines are left out."""
        return self._segments.pick(offsets[bisect_left(offsets, self.hidden_below) :])

    def stretches(self, first: int) -> list[Stretch]:
        """Return the priorities of the events from offset `first` to the end, from the index files."""
        return self._segments.stretches(max(first, self.hidden_below))

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`, 0 if it is missing."""
        return self._segments.priority_of(offset) if offset >= self.hidden_below else 0

    def offset_at(self, time_ms: int, now_ms: int | None = None) -> int:
        """Return the first offset stored at or after `time_ms`, `next` if there is none. `now_ms` is the current time."""
        # The oldest events may be hidden, or retention may have removed them during the search.
        return max(self._segments.offset_at(time_ms, now_ms), self.earliest)

    def spans(self) -> list[Span]:
        """Return the segments that `forget_below` could remove, in order."""
        return self._segments.spans()

    def hide_below(self, offset: int) -> None:
        """Hide the events below `offset`. They stay stored until `forget_below`."""
        self.hidden_below = max(self.hidden_below, min(offset, self.next))

    def end_hidden(self) -> None:
        """Close the last segment if all its events are hidden, so that it can be removed. Raises OSError."""
        with self._changing:
            last = self._segments.last
            if last.first < last.next <= self.hidden_below:
                self._end_last()

    def end_older(self, time_ms: int) -> None:
        """Close the last segment if all its events arrived before `time_ms`, so that it can be removed. Raises OSError."""
        with self._changing:
            last = self._segments.last
            if last.next > last.first and last.arrived_ms < time_ms:
                self._end_last()

    def forget_below(self, offset: int) -> None:
        """Remove each closed segment whose events are all below `offset`. Raises OSError."""
        with self._removing:
            if self._is_set_aside:
                return
            with self._changing:
                segments = self._segments.all
                count = sum(segment.next <= offset for segment in segments[:-1])
                self._segments = Segments(segments[count:])
            for segment in segments[:count]:
                segment.remove()
                # The oldest segment first, each synced, so that a power cut leaves no gap between the remaining ones.
                sync_directory(self.directory)

    def skip_to(self, offset: int) -> None:
        """Continue at `offset`, since the offsets before it were already used. It must be at least `next`. Raises OSError."""
        with self._changing:
            self._roll(offset)

    def set_aside(self, directory: Path) -> None:
        """Rename the folder to `directory`, durably, and write nothing after that. Raises OSError if the folder stays.

        From then on, this log has other paths, so that it never touches the files of a new topic with the same name.
        """
        with self._removing, self._changing:
            self.directory.rename(directory)
            try:
                sync_directory(directory.parent)
                sync_directory(self.directory.parent)
            except OSError:
                directory.rename(self.directory)
                raise
            self.directory, self._is_set_aside = directory, True
            for segment in self._segments.all:
                segment.move(directory)

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments.all:
            segment.close()

    def _open_segments(self) -> list[Segment]:
        firsts = list(segment_paths(self.directory))
        segments = [Segment(self.directory, first, self._files) for first in firsts or [0]]
        for segment in segments:
            refuse_other_kinds(segment.path)
            refuse_other_kinds(segment.index_path)
            if not firsts or not segment.index_path.exists():
                segment.make()
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
        for first, index in index_paths(self.directory).items():
            if firsts and first not in firsts:
                index.unlink()
        return segments

    def _date_segments(self, now_ms: int | None) -> None:
        """Set the arrival time of each segment's last event, estimated from the timestamps of all segments."""
        segments = [segment for segment in self._segments.all if segment.size]
        for segment, arrived_ms in zip(segments, arrivals([dated(one) for one in segments], now_ms), strict=True):
            segment.arrived_ms = arrived_ms

    def _unmake(self) -> None:
        """Remove the folder of a log that could not be created, so that a refused command leaves no files."""
        with suppress(OSError):
            for path in self.directory.iterdir():
                self._files.drop(str(path))
                path.unlink()
            self.directory.rmdir()

    def _give_up_tail(self) -> None:
        """Cut the unconfirmed bytes of a segment whose write or fsync failed, and roll to a new segment."""
        tail = self._segments.last
        if tail.next > tail.first:
            self._roll(tail.next)
        else:
            tail.make()
            tail.seal()
        self._is_tail_spoilt = False

    def _end_last(self) -> None:
        """Close the last segment, also after a failed write, since no further event may come. Raises OSError."""
        if self._is_set_aside:
            return
        if self._is_tail_spoilt:
            self._give_up_tail()
        else:
            self._roll(self.next)

    def _roll(self, first: int) -> None:
        with suppress(FileNotFoundError):
            self._segments.last.seal()
        added = Segment(self.directory, first, self._files)
        try:
            added.make()
            sync_directory(self.directory)
        except OSError:
            # A power cut could remove a name that is not synced, so the log must not write to this file.
            with suppress(OSError):
                added.remove()
            raise
        self._segments = Segments([*self._segments.all, added])
