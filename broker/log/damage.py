"""Judge whether a line is damaged, and find an intact line whose index entry is damaged."""

import os
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from broker.log.index import Entry

__all__ = ["Damage", "Place", "find_line", "is_written", "place_of", "places_of"]

_WINDOW_BYTES: Final = 4 << 20
_NEIGHBOURS: Final = 8


class Damage(NamedTuple):
    """A damaged line: its offset, and why it is considered damaged."""

    offset: int
    reason: str


class Place(msgspec.Struct):
    """The offset, timestamp and priority in a line."""

    offset: int
    timestamp: int
    priority: int


_decode_place = msgspec.json.Decoder(Place).decode


def places_of(lines: list[bytes]) -> list[Place] | None:
    """Return the place in each of `lines`, None if one of them is not an event."""
    # The decoder does not check the members that it skips, so check for NULs and invalid UTF-8 here.
    whole = b"".join(lines)
    try:
        if b"\0" in whole:
            return None
        if not whole.isascii():
            whole.decode()
        return list(map(_decode_place, lines))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def place_of(line: bytes) -> Place | None:
    """Return the place in `line`, None if it is not an event."""
    places = places_of([line])
    return places[0] if places else None


def is_written(line: bytes, entry: Entry, offset: int) -> bool:
    """Return whether `line` is intact and belongs to `offset`, judged by its index entry.

    A flipped bit in a line changes several bits of its crc32c. So if the two crc32c differ in one bit, the entry is damaged
    and not the line.
    """
    difference = crc32c(line) ^ entry.crc
    if difference.bit_count() > 1:
        return False
    place = place_of(line) if difference else None
    return difference == 0 or (place is not None and place.offset == offset)


def find_line(file: int, entry: Entry, offset: int, starts: Iterable[int]) -> bytes | None:
    """Search for the line at `offset` in the few lines after each byte of `starts`. Returns None if it is not found."""
    for start in starts:
        for piece in os.pread(file, _WINDOW_BYTES, start).split(b"\n", _NEIGHBOURS)[:_NEIGHBOURS]:
            line = piece + b"\n"
            place = place_of(line)
            if place is not None and place.offset == offset and is_written(line, entry, offset):
                return line
    return None
