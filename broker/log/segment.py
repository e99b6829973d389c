"""A segment: a file of event lines, exactly as they are delivered, and a file with their index.

Always true of an open segment: the lines of the offsets ``first … next - 1`` end at byte `size` of the file, and the index
agrees. After a crash, `recover` cuts the bytes after `size`. A sealed segment is never written again, and its whole index
is on the disk.
"""

import os
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.batch import Batch
from broker.log.damage import Damage, find_line, is_written
from broker.log.index import (
    ENTRY_BYTES,
    Entry,
    decode_entries,
    encode_entries,
    ends_and_crcs,
    entry_at,
    mark_batch,
    priorities_of,
    seal_of,
    unseal,
)
from broker.log.names import index_path, segment_path
from broker.log.open_files import OpenFiles, OpenSegment
from broker.log.reading import mapped, read_index
from broker.log.scan import Scan
from broker.log.stretch import Stretch
from tweetwire.files import FILE_MODE, end_of_data, sync_data

__all__ = ["Recovered", "Segment"]

_NEAR: Final = 64
_PICK_MAX: Final = 1000


class Recovered(NamedTuple):
    """The findings of `Segment.recover`: bytes cut after the last event, whether it rebuilt the index, damaged events."""

    cut_bytes: int
    is_index_rebuilt: bool
    damaged: int


class Segment:
    """One file of a topic's log, named by its first offset.

    The methods that read raise FileNotFoundError if the files were removed, for example by retention.
    """

    def __init__(self, directory: Path, first: int, files: OpenFiles) -> None:
        self.first = first
        self.next = first
        self.size = 0
        self.first_timestamp = 0
        self.last_timestamp = 0
        self.arrived_ms = 0
        self._files = files
        self._place(directory)

    def make(self) -> None:
        """Create the files that are missing. Raises OSError."""
        self._files.take(*self._names, is_made=True).__exit__()

    def close(self) -> None:
        """Close both files."""
        self._files.drop(self._names[0])

    def remove(self) -> None:
        """Remove the file of lines, then the index. A crash in between leaves an index only. Raises OSError."""
        self.path.unlink(missing_ok=True)
        self.index_path.unlink(missing_ok=True)
        self.close()

    def move(self, directory: Path) -> None:
        """Note that the files are now in another folder. A reader that opens the old paths finds no file."""
        before = self._names[0]
        self._place(directory)
        self._files.drop(before)

    def _place(self, directory: Path) -> None:
        self.path = segment_path(directory, self.first)
        self.index_path = index_path(self.path)
        self._names = str(self.path), str(self.index_path)

    def _open(self) -> OpenSegment:
        return self._files.take(*self._names)

    def append(self, batch: Batch, *, is_synced: bool) -> None:
        """Write a batch after the last line and, if `is_synced`, wait until the lines are on the disk.

        The index is not synced, since it can be rebuilt. Raises OSError, and then only the bytes after `size` are undefined.
        """
        if batch.first != self.next:
            raise ValueError(f"offset {batch.first} does not follow {self.next - 1}")
        entries, size = encode_entries(self.size, batch.lines, batch.timestamps, batch.priorities)
        with self._open() as on:
            _write_at(on.file, b"".join(batch.lines), self.size)
            _write_at(on.index, mark_batch(entries), (self.next - self.first) * ENTRY_BYTES)
            if is_synced:
                sync_data(on.file)
        if self.next == self.first:
            self.first_timestamp = batch.timestamps[0]
        self.size = size
        self.next = batch.next
        self.last_timestamp = batch.timestamps[-1]
        self.arrived_ms = self.last_timestamp if batch.arrived_ms is None else batch.arrived_ms

    def cut_tail(self) -> None:
        """Cut the bytes after `size`. Raises OSError."""
        with self._open() as on:
            os.ftruncate(on.file, self.size)

    def seal(self) -> None:
        """End the segment: cut the unconfirmed bytes, then write the index's seal and sync the index. Raises OSError."""
        length = (self.next - self.first) * ENTRY_BYTES
        with self._open() as on:
            os.ftruncate(on.file, self.size)
            os.ftruncate(on.index, length)
            _write_at(on.index, seal_of(os.pread(on.index, length, 0)), length)
            sync_data(on.index)

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], list[Damage]]:
        """Read up to `count` lines from offset `first`: about `bytes_max` bytes, but at least one line.

        Returns the intact lines and a list of the damaged ones. Each event read is in exactly one of the two lists.
        """
        # Decode entries for twice as many lines as fit on average: more would be wasted work.
        fitting = 2 * bytes_max * (self.next - self.first) // max(1, self.size) + 1
        count = min(count, self.next - first, fitting)
        with self._open() as on:
            return self._read(on, first, count, bytes_max)

    def _read(self, on: OpenSegment, first: int, count: int, bytes_max: int) -> tuple[list[bytes], list[Damage]]:
        found = ends_and_crcs(os.pread(on.index, count * ENTRY_BYTES, (first - self.first) * ENTRY_BYTES))
        start = self._entries(on, first - 1, 1)[0].end if first > self.first else 0
        while count > 1 and found[count - 1][0] - start > bytes_max:
            count = max(1, count // 2)
        blob = self._bytes(on, start, found[count - 1][0])
        lines: list[bytes] = []
        damaged: list[Damage] = []
        at = 0
        for offset, (end, crc) in enumerate(found[:count], first):
            line = blob[at : end - start]
            at = end - start
            if crc32c(line) == crc:
                lines.append(line)
                continue
            good = self._search(on, offset, self._entries(on, offset, 1)[0], line)
            if good is None:
                damaged.append(Damage(offset, "crc32c differs"))
            else:
                lines.append(good)
        return lines, damaged

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Return the lines at `offsets`, which must be in order. Damaged lines are left out.

        Lines that are close together are read together, since events of one priority are scattered among the others.
        """
        found: dict[int, bytes] = {}
        at = 0
        with self._open() as on:
            while at < len(offsets):
                end = at + 1
                while end < len(offsets) and offsets[end] - offsets[end - 1] <= _NEAR and end - at < _PICK_MAX:
                    end += 1
                self._pick_near(on, offsets[at:end], found)
                at = end
        return found

    def _pick_near(self, on: OpenSegment, offsets: Sequence[int], found: dict[int, bytes]) -> None:
        first, count = offsets[0], offsets[-1] - offsets[0] + 1
        before = max(first - 1, self.first)
        index = os.pread(on.index, (first + count - before) * ENTRY_BYTES, (before - self.first) * ENTRY_BYTES)
        base = entry_at(index, 0).end if first > self.first else 0
        blob = self._bytes(on, base, entry_at(index, first + count - 1 - before).end)
        for offset in offsets:
            start = entry_at(index, offset - before - 1).end - base if offset > first else 0
            entry = entry_at(index, offset - before)
            line = blob[max(start, 0) : max(entry.end - base, 0)]
            good = line if crc32c(line) == entry.crc else self._search(on, offset, entry, line)
            if good is not None:
                found[offset] = good

    def stretch(self, first: int) -> Stretch:
        """Return the priorities of the events from offset `first` on."""
        skipped = max(0, first - self.first)
        length = (self.next - self.first - skipped) * ENTRY_BYTES
        with self._open() as on:
            priorities = priorities_of(os.pread(on.index, length, skipped * ENTRY_BYTES))
        return Stretch(self.first + skipped, priorities)

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`."""
        with self._open() as on:
            return self._entries(on, offset, 1)[0].priority

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset with a timestamp of `time_ms` or later, `next` if there is none."""
        offsets = range(self.first, self.next)
        with self._open() as on:
            return self.first + bisect_left(offsets, time_ms, key=lambda at: self._entries(on, at, 1)[0].timestamp)

    def open_sealed(self, limit: int) -> bool:
        """Open a sealed segment by its index; the next one begins at `limit`. Returns False if the index is not whole."""
        with self._open() as on:
            size = os.fstat(on.file).st_size
            entries = unseal(read_index(on.index, size))
        if entries is None or self.first + len(entries) // ENTRY_BYTES > limit:
            return False
        last = entry_at(entries, len(entries) // ENTRY_BYTES - 1) if entries else Entry(0, 0, 0, 0)
        if last.end != size:
            return False
        self.size, self.next, self.last_timestamp = size, self.first + len(entries) // ENTRY_BYTES, last.timestamp
        self.first_timestamp = entry_at(entries, 0).timestamp if entries else 0
        return True

    def recover(self, limit: int | None = None) -> Recovered:
        """Find the events by reading the file, rebuild the index to fit, and cut the bytes after the last event.

        `limit` is the offset at which the next segment begins, None for the last segment. Whole events after a torn write
        are cut, too; they are kept in a separate file. Raises OSError.
        """
        with self._open() as on:
            return self._recover(on, limit)

    def _recover(self, on: OpenSegment, limit: int | None) -> Recovered:
        file_size, data_end = os.fstat(on.file).st_size, end_of_data(on.file)
        known = read_index(on.index, data_end)
        with mapped(on.file, data_end) as data:
            scan = Scan(data, known, self.first, limit)
            if scan.has_events_behind:
                self._set_aside(data[scan.size :], scan.size)
        self.size, self.next, self.last_timestamp = scan.size, scan.next, scan.last_timestamp
        self.first_timestamp = entry_at(bytes(scan.entries[:ENTRY_BYTES]), 0).timestamp if scan.entries else 0
        if file_size > self.size:
            os.ftruncate(on.file, self.size)
            sync_data(on.file)
        made = bytes(scan.entries) + (seal_of(scan.entries) if limit is not None else b"")
        if made != known:
            os.ftruncate(on.index, 0)
            _write_at(on.index, made, 0)
            # Sync, so that a power cut cannot restore the entries of cut events, whose offsets are used again.
            sync_data(on.index)
        is_rebuilt = len(known) > 0 and known[: len(scan.entries)] != scan.entries
        return Recovered(file_size - self.size, is_rebuilt, scan.damaged)

    def _set_aside(self, cut: bytes, position: int) -> None:
        path = self.path.with_suffix(f".cut-{position}")
        with suppress(FileExistsError), open(path, "xb", opener=_open_private) as aside:
            aside.write(cut)
            os.fsync(aside.fileno())

    def _bytes(self, on: OpenSegment, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`: fewer if a damaged index names places beyond the end of the file."""
        return os.pread(on.file, min(end, self.size) - start, start) if start < min(end, self.size) else b""

    def _search(self, on: OpenSegment, offset: int, entry: Entry, line: bytes) -> bytes | None:
        """Search for an intact line at `offset`, since the index may be damaged. Returns None if the line itself is damaged."""
        if is_written(line, entry, offset):
            return line
        low = max(self.first, offset - 3)
        starts = {before.end for before in self._entries(on, low, offset - low)} | ({0} if low == self.first else set())
        return find_line(on.file, entry, offset, sorted(start for start in starts if start < self.size))

    def _entries(self, on: OpenSegment, first: int, count: int) -> list[Entry]:
        raw = os.pread(on.index, count * ENTRY_BYTES, (first - self.first) * ENTRY_BYTES)
        return decode_entries(raw)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _write_at(file: int, data: "bytes | bytearray", position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        view = view[written:]
        position += written
