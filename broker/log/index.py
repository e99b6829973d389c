"""The index of a segment: one entry of fixed width for each event, so that an entry's position follows from the offset.

The index can always be rebuilt from the segment. It holds two facts that the segment does not: each line's crc32c, and
where each batch begins. A batch is written only after the previous one is on the disk. So an event at the beginning of a
batch proves that everything before it was synced. The index of a closed segment ends with the crc32c of its entries.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from crc32c import crc32c

__all__ = [
    "BATCH_MARK",
    "ENTRY_BYTES",
    "SEAL_BYTES",
    "Entry",
    "decode_entries",
    "encode_entries",
    "ends_and_crcs",
    "entry_at",
    "mark_batch",
    "pack_entry",
    "priorities_of",
    "seal_of",
    "unseal",
    "without_marks",
]

_PLAIN: Final = struct.Struct("<QQIB3x")
_ENTRY: Final = struct.Struct("<QQIBB2x")
_SEAL: Final = struct.Struct("<I")
ENTRY_BYTES: Final = _ENTRY.size
SEAL_BYTES: Final = _SEAL.size
_PRIORITY_AT: Final = 20
_MARKS_AT: Final = 21
BATCH_MARK: Final = 1
"""The bit in an entry's `marks` that says: a batch begins with this event."""


class Entry(NamedTuple):
    """One event's entry: the byte where its line ends, its timestamp (ms), the line's crc32c, its priority, and its marks."""

    end: int
    timestamp: int
    crc: int
    priority: int
    marks: int = 0


def encode_entries(
    start: int, lines: Sequence[bytes], timestamps: Iterable[int], priorities: Iterable[int]
) -> tuple[bytes, int]:
    """Return the entries for `lines` that begin at byte `start` of their segment, and the byte where the last one ends."""
    ends = list(accumulate(map(len, lines), initial=start))
    entries = b"".join(map(_PLAIN.pack, ends[1:], timestamps, map(crc32c, lines), priorities))
    return entries, ends[-1]


def mark_batch(entries: bytes) -> bytearray:
    """Return `entries` with the batch mark set in the first one."""
    marked = bytearray(entries)
    marked[_MARKS_AT] |= BATCH_MARK
    return marked


def without_marks(entries: bytes) -> bytearray:
    """Return `entries` without batch marks, as `encode_entries` makes them from the lines."""
    plain = bytearray(entries)
    plain[_MARKS_AT::ENTRY_BYTES] = bytes(len(entries) // ENTRY_BYTES)
    return plain


def pack_entry(entry: Entry) -> bytes:
    """Return one entry as the bytes of the index."""
    return _ENTRY.pack(*entry)


def decode_entries(raw: bytes) -> list[Entry]:
    """Return the entries in `raw`, whose length is a multiple of `ENTRY_BYTES`."""
    return [Entry(*values) for values in _ENTRY.iter_unpack(raw)]


def ends_and_crcs(raw: bytes) -> list[tuple[int, int]]:
    """Return the end and the crc32c of each entry in `raw`."""
    return [(end, crc) for end, _, crc, _, _ in _ENTRY.iter_unpack(raw)]


def entry_at(raw: bytes, number: int) -> Entry:
    """Return the entry with this number in `raw`, counted from 0."""
    return Entry(*_ENTRY.unpack_from(raw, number * ENTRY_BYTES))


def seal_of(entries: "bytes | bytearray") -> bytes:
    """Return the seal that ends the index of a closed segment with these entries."""
    return _SEAL.pack(crc32c(entries))


def unseal(raw: bytes) -> bytes | None:
    """Return the entries of a closed index, None if it is incomplete or damaged."""
    entries, seal = raw[:-SEAL_BYTES], raw[-SEAL_BYTES:]
    return entries if len(entries) % ENTRY_BYTES == 0 and seal == seal_of(entries) else None


def priorities_of(raw: bytes) -> bytes:
    """Return the priorities of the entries in `raw`, one byte each."""
    return raw[_PRIORITY_AT::ENTRY_BYTES]
