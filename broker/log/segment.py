"""A segment: event lines exactly as they are delivered, and the index beside them.

Always true of an open segment: the lines of the offsets ``first … next - 1`` end at `size`, in the file and in the
index alike, and everything up to there was written by one `append` after the other. What a crash leaves behind `size`
is cut by `recover`. A sealed segment is not written to any more, and the disk has all of its index.
"""

import mmap
import os
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

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
from broker.log.scan import Scan
from broker.log.stretch import Stretch

__all__ = ["Batch", "Recovered", "Segment"]

_NEAR: Final = 64
_PICK_MAX: Final = 1000


@dataclass(slots=True)
class Batch:
    """Events that are to be written together: `lines[i]` is the event at offset `first` + i."""

    first: int
    lines: list[bytes] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)

    @property
    def next(self) -> int:
        """The offset behind the last event."""
        return self.first + len(self.lines)


class Recovered(NamedTuple):
    """What `Segment.recover` found: bytes it cut behind the last event, whether it made the index again, damaged events."""

    cut_bytes: int
    is_index_rebuilt: bool
    damaged: int


class Segment:
    """One file of a topic's log. The name is its first offset, with 20 digits.

    The files close when `close` is called or nobody has the segment any more, so that one which retention takes away
    lives as long as somebody reads it.
    """

    def __init__(self, directory: Path, first: int) -> None:
        self.first = first
        self.next = first
        self.size = 0
        self.last_timestamp = 0
        self.path = directory / f"{first:020d}.jsonl"
        self.index_path = self.path.with_suffix(".index")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o644)
        self._index = os.open(self.index_path, flags, 0o644)
        self._closing = weakref.finalize(self, _close, self._file, self._index)

    def close(self) -> None:
        """Close both files; what was written stays."""
        self._closing()

    def remove(self) -> None:
        """Take the files' names away, the lines' first, so that an index is never without lines. Raises OSError."""
        self.path.unlink(missing_ok=True)
        self.index_path.unlink(missing_ok=True)

    def append(self, batch: Batch, *, is_synced: bool) -> None:
        """Write a batch behind the last line and, if asked, wait until the disk has it.

        The index is not waited for, since the lines tell it all. Raises OSError, and then the segment holds what it
        held before, with something unknown behind `size`.
        """
        if batch.first != self.next:
            raise ValueError(f"offset {batch.first} does not follow {self.next - 1}")
        entries, size = encode_entries(self.size, batch.lines, batch.timestamps, batch.priorities)
        _write_at(self._file, b"".join(batch.lines), self.size)
        _write_at(self._index, mark_batch(entries), (self.next - self.first) * ENTRY_BYTES)
        if is_synced:
            os.fdatasync(self._file)
        self.size = size
        self.next = batch.next
        self.last_timestamp = batch.timestamps[-1]

    def cut_tail(self) -> None:
        """Take away what stands behind `size`. Raises OSError."""
        os.ftruncate(self._file, self.size)

    def seal(self) -> None:
        """End the segment: cut what was never confirmed, and have the disk take the whole index. Raises OSError."""
        self.cut_tail()
        length = (self.next - self.first) * ENTRY_BYTES
        os.ftruncate(self._index, length)
        _write_at(self._index, seal_of(os.pread(self._index, length, 0)), length)
        os.fdatasync(self._index)

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], list[Damage]]:
        """Read up to `count` lines from offset `first`, at least one and no more than `bytes_max` beyond it.

        Damaged lines are left out of the lines and named in the second list; an event stands in exactly one of them.
        """
        # Twice what is expected to fit, so that entries are not decoded in vain.
        fitting = 2 * bytes_max * (self.next - self.first) // max(1, self.size) + 1
        count = min(count, self.next - first, fitting)
        found = ends_and_crcs(os.pread(self._index, count * ENTRY_BYTES, (first - self.first) * ENTRY_BYTES))
        start = self._entries(first - 1, 1)[0].end if first > self.first else 0
        while count > 1 and found[count - 1][0] - start > bytes_max:
            count = max(1, count // 2)
        blob = self._bytes(start, found[count - 1][0])
        lines: list[bytes] = []
        damaged: list[Damage] = []
        at = 0
        for offset, (end, crc) in enumerate(found[:count], first):
            line = blob[at : end - start]
            at = end - start
            if crc32c(line) == crc:
                lines.append(line)
                continue
            good = self._search(offset, self._entries(offset, 1)[0], line)
            if good is None:
                damaged.append(Damage(offset, "crc32c differs"))
            else:
                lines.append(good)
        return lines, damaged

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Read single lines of this segment, `offsets` being in order; damaged ones are missing in the result.

        What lies near each other is read in one go, since a priority's events are scattered among the others.
        """
        found: dict[int, bytes] = {}
        at = 0
        while at < len(offsets):
            end = at + 1
            while end < len(offsets) and offsets[end] - offsets[end - 1] <= _NEAR and end - at < _PICK_MAX:
                end += 1
            self._pick_near(offsets[at:end], found)
            at = end
        return found

    def _pick_near(self, offsets: Sequence[int], found: dict[int, bytes]) -> None:
        first, count = offsets[0], offsets[-1] - offsets[0] + 1
        before = max(first - 1, self.first)
        index = os.pread(self._index, (first + count - before) * ENTRY_BYTES, (before - self.first) * ENTRY_BYTES)
        base = entry_at(index, 0).end if first > self.first else 0
        blob = self._bytes(base, entry_at(index, first + count - 1 - before).end)
        for offset in offsets:
            start = entry_at(index, offset - before - 1).end - base if offset > first else 0
            entry = entry_at(index, offset - before)
            line = blob[max(start, 0) : max(entry.end - base, 0)]
            good = line if crc32c(line) == entry.crc else self._search(offset, entry, line)
            if good is not None:
                found[offset] = good

    def stretch(self, first: int) -> Stretch:
        """Return the priorities of the events from offset `first` on."""
        skipped = max(0, first - self.first)
        length = (self.next - self.first - skipped) * ENTRY_BYTES
        return Stretch(self.first + skipped, priorities_of(os.pread(self._index, length, skipped * ENTRY_BYTES)))

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`."""
        return self._entries(offset, 1)[0].priority

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset stored at or after `time_ms`, `next` where there is none."""
        return (
            bisect_left(range(self.first, self.next), time_ms, key=lambda offset: self._entries(offset, 1)[0].timestamp)
            + self.first
        )

    def open_sealed(self, limit: int) -> bool:
        """Take over a segment that another follows at offset `limit`, by its index alone; False where that is not whole."""
        size = os.fstat(self._file).st_size
        entries = unseal(os.pread(self._index, os.fstat(self._index).st_size, 0))
        if entries is None or self.first + len(entries) // ENTRY_BYTES > limit:
            return False
        last = entry_at(entries, len(entries) // ENTRY_BYTES - 1) if entries else Entry(0, 0, 0, 0)
        if last.end != size:
            return False
        self.size, self.next, self.last_timestamp = size, self.first + len(entries) // ENTRY_BYTES, last.timestamp
        return True

    def recover(self, limit: int | None = None) -> Recovered:
        """Find the events by reading the file, make the index fit them, and cut what is behind the last one.

        `limit` is the offset at which the next segment begins, None where there is none. Whole events that must be cut,
        since something before them was never written, are kept in a file of their own. Raises OSError.
        """
        known = os.pread(self._index, os.fstat(self._index).st_size, 0)
        file_size = os.fstat(self._file).st_size
        with _mapped(self._file, file_size) as data:
            scan = Scan(data, known, self.first, limit)
            if scan.has_events_behind:
                self._set_aside(data[scan.size :], scan.size)
        self.size, self.next, self.last_timestamp = scan.size, scan.next, scan.last_timestamp
        if file_size > self.size:
            self.cut_tail()
            os.fdatasync(self._file)
        made = bytes(scan.entries) + (seal_of(scan.entries) if limit is not None else b"")
        if made != known:
            os.ftruncate(self._index, 0)
            _write_at(self._index, made, 0)
            # Entries of events that were cut must not come back and speak for those that take their places.
            os.fdatasync(self._index)
        is_rebuilt = len(known) > 0 and known[: len(scan.entries)] != scan.entries
        return Recovered(file_size - self.size, is_rebuilt, scan.damaged)

    def _set_aside(self, cut: bytes, position: int) -> None:
        with suppress(FileExistsError), self.path.with_suffix(f".cut-{position}").open("xb") as aside:
            aside.write(cut)
            os.fsync(aside.fileno())

    def _bytes(self, start: int, end: int) -> bytes:
        """Read the bytes between two ends as the index tells them, which may be wrong."""
        return os.pread(self._file, min(end, self.size) - start, start) if start < min(end, self.size) else b""

    def _search(self, offset: int, entry: Entry, line: bytes) -> bytes | None:
        """Look again for a line whose crc32c differs, as if the index had the damage; None where it is the line's."""
        if is_written(line, entry, offset):
            return line
        low = max(self.first, offset - 3)
        starts = {before.end for before in self._entries(low, offset - low)} | ({0} if low == self.first else set())
        return find_line(self._file, entry, offset, sorted(start for start in starts if start < self.size))

    def _entries(self, first: int, count: int) -> list[Entry]:
        raw = os.pread(self._index, count * ENTRY_BYTES, (first - self.first) * ENTRY_BYTES)
        return decode_entries(raw)


@contextmanager
def _mapped(file: int, size: int) -> "Iterator[bytes | mmap.mmap]":
    """Give a file's bytes without reading them all; an empty file cannot be mapped."""
    if size == 0:
        yield b""
        return
    with mmap.mmap(file, size, access=mmap.ACCESS_READ) as data:
        yield data


def _close(file: int, index: int) -> None:
    os.close(file)
    os.close(index)


def _write_at(file: int, data: "bytes | bytearray", position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        view = view[written:]
        position += written
