"""A segment: event lines exactly as they are delivered, and the index beside them.

Always true of an open segment: the lines of the offsets ``first … next - 1`` end at `size`, in the file and in the
index alike, and everything up to there was written by one `append` after the other. What a crash leaves behind `size`
is cut by `recover`.
"""

import os
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from broker.log.index import ENTRY_BYTES, Entry, decode_entries, encode_entries, entry_at, lanes_of

__all__ = ["Batch", "Damage", "Recovered", "Segment"]

_SCAN_BYTES = 4 << 20
_NEAR = 64
_PICK_MAX = 1000


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


class Damage(NamedTuple):
    """A line that is not what was written."""

    offset: int
    reason: str


class Recovered(NamedTuple):
    """What `Segment.recover` found: the bytes it cut behind the last good line, and whether it made the index again."""

    cut_bytes: int
    is_index_rebuilt: bool


class _Place(msgspec.Struct):
    offset: int
    timestamp: int
    priority: int


_decode_place = msgspec.json.Decoder(_Place).decode


class Segment:
    """One file of a topic's log. The name is its first offset, with 20 digits."""

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

    def close(self) -> None:
        """Close both files; what was written stays."""
        os.close(self._file)
        os.close(self._index)

    def append(self, batch: Batch, *, is_synced: bool) -> None:
        """Write a batch behind the last line and, if asked, wait until the disk has it.

        The index is not waited for, since the lines tell it all. Raises OSError, and then the segment holds what it
        held before, with something unknown behind `size`.
        """
        if batch.first != self.next:
            raise ValueError(f"offset {batch.first} does not follow {self.next - 1}")
        entries, size = encode_entries(self.size, batch.lines, batch.timestamps, batch.priorities)
        _write_at(self._file, b"".join(batch.lines), self.size)
        _write_at(self._index, entries, (self.next - self.first) * ENTRY_BYTES)
        if is_synced:
            os.fdatasync(self._file)
        self.size = size
        self.next = batch.next
        self.last_timestamp = batch.timestamps[-1]

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], list[Damage]]:
        """Read up to `count` lines from offset `first`, at least one and no more than `bytes_max` beyond it.

        Damaged lines are left out of the lines and named in the second list; an event stands in exactly one of them.
        """
        count = min(count, self.next - first)
        entries = self._entries(first, count)
        start = self._entries(first - 1, 1)[0].end if first > self.first else 0
        while count > 1 and entries[count - 1].end - start > bytes_max:
            count = max(1, count // 2)
        blob = os.pread(self._file, entries[count - 1].end - start, start)
        lines: list[bytes] = []
        damaged: list[Damage] = []
        at = 0
        for offset, entry in enumerate(entries[:count], first):
            line = blob[at : entry.end - start]
            at = entry.end - start
            if crc32c(line) == entry.crc:
                lines.append(line)
            else:
                damaged.append(Damage(offset, "crc32c differs"))
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
        size = entry_at(index, first + count - 1 - before).end - base
        blob = os.pread(self._file, size, base)
        for offset in offsets:
            start = entry_at(index, offset - before - 1).end - base if offset > first else 0
            entry = entry_at(index, offset - before)
            line = blob[start : entry.end - base]
            if crc32c(line) == entry.crc:
                found[offset] = line

    def lanes(self, first: int) -> dict[int, "array[int]"]:
        """Return the offsets from `first` on by priority."""
        skipped = max(0, first - self.first)
        length = (self.next - self.first - skipped) * ENTRY_BYTES
        return lanes_of(self.first + skipped, os.pread(self._index, length, skipped * ENTRY_BYTES))

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`."""
        return self._entries(offset, 1)[0].priority

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset stored at or after `time_ms`, `next` where there is none."""
        return (
            bisect_left(range(self.first, self.next), time_ms, key=lambda offset: self._entries(offset, 1)[0].timestamp)
            + self.first
        )

    def open_closed(self) -> bool:
        """Take over a segment that another follows, by its index alone; False where the index does not fit the file."""
        size = os.fstat(self._file).st_size
        count, odd = divmod(os.fstat(self._index).st_size, ENTRY_BYTES)
        if count == 0 or odd:
            return False
        last = decode_entries(os.pread(self._index, ENTRY_BYTES, (count - 1) * ENTRY_BYTES))[0]
        if last.end != size:
            return False
        self.size, self.next, self.last_timestamp = size, self.first + count, last.timestamp
        return True

    def recover(self) -> Recovered:
        """Find the last good line by reading the file, make the index fit it, and cut what is behind it."""
        known = os.pread(self._index, os.fstat(self._index).st_size, 0)
        file_size = os.fstat(self._file).st_size
        made = bytearray()
        while lines := self._next_lines():
            places = [self._place(number, line) for number, line in enumerate(lines, self.next)]
            entries, self.size = encode_entries(
                self.size, lines, [place.timestamp for place in places], [place.priority for place in places]
            )
            made += self._keep_known(entries, known, len(made))
            self.next += len(lines)
            self.last_timestamp = places[-1].timestamp
        if file_size > self.size:
            os.ftruncate(self._file, self.size)
            os.fdatasync(self._file)
        is_rebuilt = bytes(made) != known
        if is_rebuilt:
            os.ftruncate(self._index, 0)
            _write_at(self._index, bytes(made), 0)
        return Recovered(file_size - self.size, is_rebuilt and len(known) > 0)

    def _keep_known(self, entries: bytes, known: bytes, at: int) -> bytes:
        """Prefer the index's own entry where it agrees about the line's end, so that a flipped bit stays noticed."""
        old = known[at : at + len(entries)]
        if len(old) != len(entries) or old == entries:
            return entries
        kept = bytearray()
        for i in range(0, len(entries), ENTRY_BYTES):
            before, now = old[i : i + ENTRY_BYTES], entries[i : i + ENTRY_BYTES]
            kept += before if before[:8] == now[:8] else now
        return bytes(kept)

    def _next_lines(self) -> list[bytes]:
        """Read the whole lines behind `size`, a few MiB of them, up to the first that was not written to its end."""
        length = _SCAN_BYTES
        while True:
            blob = os.pread(self._file, length, self.size)
            whole = blob.rfind(b"\n") + 1
            if whole or len(blob) < length:
                break
            length *= 2
        lines = [line + b"\n" for line in blob[:whole].split(b"\n")[:-1]]
        for number, line in enumerate(lines):
            if b"\0" in line:
                return lines[:number]
        return lines

    def _place(self, offset: int, line: bytes) -> _Place:
        try:
            place = _decode_place(line)
        except msgspec.MsgspecError:
            return _Place(offset, self.last_timestamp, 0)
        return place if place.offset == offset else _Place(offset, self.last_timestamp, 0)

    def _entries(self, first: int, count: int) -> list[Entry]:
        raw = os.pread(self._index, count * ENTRY_BYTES, (first - self.first) * ENTRY_BYTES)
        return decode_entries(raw)


def _write_at(file: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        view = view[written:]
        position += written
