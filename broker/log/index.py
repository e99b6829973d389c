"""The index beside a segment: one fixed-width entry an event, so that an offset is an address.

The index can always be made again from the segment; it never says anything the segment does not.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from typing import Final, NamedTuple

from crc32c import crc32c

__all__ = ["ENTRY_BYTES", "Entry", "decode_entries", "encode_entries", "entry_at", "lanes_of", "split_by_priority"]

_ENTRY: Final = struct.Struct("<QQIB3x")
ENTRY_BYTES: Final = _ENTRY.size
_PRIORITY_AT: Final = 20


class Entry(NamedTuple):
    """Where an event's line ends in its segment, when it was stored (ms), its crc32c, and its priority."""

    end: int
    timestamp: int
    crc: int
    priority: int


def encode_entries(
    start: int, lines: Sequence[bytes], timestamps: Iterable[int], priorities: Iterable[int]
) -> tuple[bytes, int]:
    """Return the entries for `lines` that begin at byte `start` of their segment, and the byte where the last one ends."""
    ends = list(accumulate(map(len, lines), initial=start))
    entries = b"".join(map(_ENTRY.pack, ends[1:], timestamps, map(crc32c, lines), priorities))
    return entries, ends[-1]


def decode_entries(raw: bytes) -> list[Entry]:
    """Return the entries in `raw`, whose length is a multiple of `ENTRY_BYTES`."""
    return [Entry(*values) for values in _ENTRY.iter_unpack(raw)]


def entry_at(raw: bytes, number: int) -> Entry:
    """Return one entry of `raw`."""
    return Entry(*_ENTRY.unpack_from(raw, number * ENTRY_BYTES))


def lanes_of(first: int, raw: bytes) -> dict[int, "array[int]"]:
    """Return, for each priority in the entries `raw` of the offsets from `first` on, its offsets in order."""
    return split_by_priority(first, raw[_PRIORITY_AT::ENTRY_BYTES])


def split_by_priority(first: int, priorities: bytes) -> dict[int, "array[int]"]:
    """Return, for each priority that stands in `priorities`, the offsets that have it; the first byte is `first`'s."""
    offsets = range(first, first + len(priorities))
    found = set(priorities)
    if len(found) == 1:
        return {found.pop(): array("Q", offsets)}
    return {p: array("Q", compress(offsets, priorities.translate(_ONLY[p]))) for p in found}


_ONLY: Final = [bytes(priority == wanted for priority in range(256)) for wanted in range(256)]
