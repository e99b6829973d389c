"""Find the events in a segment's bytes, also if the segment or its index is damaged.

Bytes that are not an event are torn or damaged:

- A power cut leaves the last batch *torn*: an incomplete line at the end, or NULs where a sector was never written. The
  broker never confirmed this batch. The segment ends before it.
- All other such bytes are *damage* of confirmed events. These events keep their offsets, with index entries whose crc32c
  matches no line. So readers skip and report them, and still find the later events.

Two facts distinguish damaged bytes from torn ones. In an open segment only the last batch can be torn, so the beginning of a
later batch proves damage. A flipped bit turns at most one byte into a NUL, and never a brace or a line feed.
"""

import mmap
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias

from crc32c import crc32c

from broker.log.damage import Place, place_of, places_of
from broker.log.index import (
    BATCH_MARK,
    ENTRY_BYTES,
    Entry,
    decode_entries,
    encode_entries,
    entry_at,
    pack_entry,
    without_marks,
)

__all__ = ["Scan"]

_CHUNK_BYTES: Final = 4 << 20
_LINE_BYTES_MIN: Final = 32
_WRONG: Final = 0xFFFFFFFF
_NONE: Final = 1 << 64

Bytes: TypeAlias = "bytes | mmap.mmap"


class Scan:
    """Finds the events of a segment when it is constructed. The attributes are the findings.

    Args:
        data: The segment's bytes.
        known: The bytes of its index, which may be missing, short or damaged.
        first: The segment's first offset.
        limit: The offset at which the next segment begins, None if the segment is open.

    Attributes:
        size: The byte at which the last event ends. The caller cuts the bytes after it.
        next: The offset after the last event.
        entries: The index entries for the bytes before `size`.
        damaged: How many of these entries are for damaged events.
        last_timestamp: The highest timestamp found so far.
        has_events_behind: Whether there are whole events after `size`.
    """

    def __init__(self, data: Bytes, known: bytes, first: int, limit: int | None) -> None:
        self.size = 0
        self.next = first
        self.entries = bytearray()
        self.damaged = 0
        self.last_timestamp = 0
        self.has_events_behind = False
        self._data = data
        self._known = known[: len(known) // ENTRY_BYTES * ENTRY_BYTES]
        self._first = first
        self._limit = limit
        # The results of the two searches ahead. Each is used until the scan has passed its place, so that no bytes are searched
        # twice.
        self._ahead: tuple[int, int] | None = (0, 0)
        self._batch_ahead = -1
        while self.size < len(data) and not self._is_full and (self._take_events() or self._pass_damage()):
            pass

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and self.next >= self._limit

    def _take_events(self) -> bool:
        """Take the events that follow in order, a few MiB at most. Returns whether there was an event."""
        most = None if self._limit is None else self._limit - self.next
        lines = self._lines()[:most]
        places = places_of(lines)
        if places is None or [place.offset for place in places] != list(range(self.next, self.next + len(lines))):
            places = list(self._leading(lines))
            del lines[len(places) :]
        if lines:
            priorities = [place.priority & 0xFF for place in places]
            self._add(*encode_entries(self.size, lines, [place.timestamp for place in places], priorities), len(lines))
            self.last_timestamp = places[-1].timestamp
        return bool(lines)

    def _leading(self, lines: list[bytes]) -> Iterator[Place]:
        for offset, line in enumerate(lines, self.next):
            place = place_of(line)
            if place is None or place.offset != offset:
                return
            yield place

    def _lines(self) -> list[bytes]:
        """Return the whole lines of the next few MiB. A longer line is returned alone."""
        end = self._data.rfind(b"\n", self.size, self.size + _CHUNK_BYTES) + 1
        if not end:
            end = self._data.find(b"\n", self.size) + 1
        return _split(self._data[self.size : end])

    def _add(self, entries: bytes, size: int, count: int) -> None:
        """Add entries made from lines. Take over the crc32c and the marks of the known index, which the lines do not hold."""
        at = len(self.entries)
        known = self._known[at : at + len(entries)]
        self.entries += known if entries == without_marks(known) else b"".join(_merged(entries, known))
        self.size = size
        self.next += count

    def _pass_damage(self) -> bool:
        """Skip bytes that are not an event. Returns False if they are torn, so that the segment ends before them."""
        start = self.size
        found = self._next_event()
        behind = found[0] if found else len(self._data)
        if self._limit is None and self._is_torn(start, behind, is_last=found is None):
            self.has_events_behind = found is not None
            return False
        entry = self._known_entry()
        if entry is not None and (found is None or entry.end <= behind):
            self.entries += pack_entry(entry)
            self._note_damage(1, entry.end)
            self.last_timestamp = max(self.last_timestamp, entry.timestamp)
        elif found is not None:
            self._mark(start, behind, found[1] - self.next)
        else:
            most = len(self._data) if self._limit is None else self._limit - self.next
            self._mark(start, behind, min(most, max(1, len(_split(self._data[start:behind])))))
        return True

    def _known_entry(self) -> Entry | None:
        """Return the index's entry for the next offset if a line can begin at `size` and end where the entry says."""
        number = self.next - self._first
        if (number + 1) * ENTRY_BYTES > len(self._known):
            return None
        start = entry_at(self._known, number - 1).end if number else 0
        entry = entry_at(self._known, number)
        is_possible = start == self.size < entry.end <= len(self._data)
        return entry if is_possible and self._data[entry.end : entry.end + 1] in {b"", b"{"} else None

    def _next_event(self) -> tuple[int, int] | None:
        """Return (byte, offset) of the first event after the bytes that are not an event, None if no event follows."""
        ahead = self._ahead
        if ahead is not None and (ahead[0] <= self.size or ahead[1] <= self.next):
            ahead = self._ahead = self._find_event()
        return ahead

    def _find_event(self) -> tuple[int, int] | None:
        start = self.size
        while start := self._data.find(b"\n", start) + 1:
            end = self._data.find(b"\n", start) + 1
            place = place_of(self._data[start:end]) if end else None
            if place is not None and self._is_possible(start, place.offset):
                return start, place.offset
        return None

    def _is_possible(self, start: int, offset: int) -> bool:
        """Return whether the event at byte `start` can have this offset, given how many events fit into the skipped bytes."""
        passed = offset - self.next
        return 0 < passed <= 1 + (start - self.size) // _LINE_BYTES_MIN and (
            self._limit is None or offset < self._limit
        )

    def _is_torn(self, start: int, behind: int, *, is_last: bool) -> bool:
        hole = self._data[start:behind]
        is_cut_off = is_last and hole.find(b"\n") < 0 and self._known_entry() is None
        has_hole = hole[:1] == b"\0" or b"\0\0" in hole or (is_last and hole[-1:] == b"\0")
        return (is_cut_off or has_hole) and not self._is_followed_by_batch()

    def _is_followed_by_batch(self) -> bool:
        """Return whether the file holds the beginning of a batch after the next offset."""
        if self._batch_ahead <= self.next:
            self._batch_ahead = next(self._batches_ahead(), _NONE)
        return self._batch_ahead != _NONE

    def _batches_ahead(self) -> Iterator[int]:
        number = self.next - self._first
        entries = decode_entries(self._known[number * ENTRY_BYTES :])
        for offset, (before, entry) in enumerate(pairwise(entries), self.next + 1):
            if entry.marks & BATCH_MARK and before.end < entry.end <= len(self._data):
                line = self._data[before.end : entry.end]
                place = place_of(line)
                if place is not None and place.offset == offset and crc32c(line) == entry.crc:
                    yield offset

    def _mark(self, start: int, end: int, count: int) -> None:
        """Add `count` entries for damaged bytes: one for each line, and the rest of the bytes for the last entry."""
        pieces = _split(self._data[start:end])
        pieces[count - 1 :] = [b"".join(pieces[count - 1 :])]
        at = start
        for piece in [*pieces, *[b""] * (count - len(pieces))][:count]:
            at += len(piece)
            self.entries += pack_entry(Entry(at, self.last_timestamp, crc32c(piece) ^ _WRONG, 0))
        self._note_damage(count, end)

    def _note_damage(self, count: int, end: int) -> None:
        self.damaged += count
        self.next += count
        self.size = end


def _split(lines: bytes) -> list[bytes]:
    """Split into lines that keep their line feed. The last one may lack it."""
    *whole, rest = lines.split(b"\n")
    return [*(line + b"\n" for line in whole), *([rest] if rest else [])]


def _merged(entries: bytes, known: bytes) -> Iterator[bytes]:
    for number, entry in enumerate(decode_entries(entries)):
        if (number + 1) * ENTRY_BYTES > len(known):
            yield pack_entry(entry)
            continue
        before = entry_at(known, number)
        if before.end != entry.end:
            yield pack_entry(entry)
        else:
            # If the crc32c differ in one bit, the entry is damaged; if in more, the line is. A crc32c of 0 in the index
            # is the unwritten half of an entry, since an entry can span two sectors.
            crc = before.crc if before.crc and (before.crc ^ entry.crc).bit_count() > 1 else entry.crc
            yield pack_entry(entry._replace(crc=crc, marks=before.marks & BATCH_MARK))
