"""What is told of a line that is not what was written, and how a good one is found beside an index that is damaged."""

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
    """A line that is not what was written."""

    offset: int
    reason: str


class Place(msgspec.Struct):
    """What a line says of its own place."""

    offset: int
    timestamp: int
    priority: int


_decode_place = msgspec.json.Decoder(Place).decode


def places_of(lines: list[bytes]) -> list[Place] | None:
    """Return what lines say of their places, None where one of them is no event."""
    # JSON never holds a NUL and is UTF-8, but the decoder does not look into what it skips.
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
    """Return what a line says of its place, None for one that no event is."""
    places = places_of([line])
    return places[0] if places else None


def is_written(line: bytes, entry: Entry, offset: int) -> bool:
    """Whether a line is what was written at `offset`, as far as its entry tells.

    A bit that has changed in a line changes several of its crc32c, so a difference of one bit is the entry's own damage.
    """
    difference = crc32c(line) ^ entry.crc
    if difference.bit_count() > 1:
        return False
    place = place_of(line) if difference else None
    return difference == 0 or (place is not None and place.offset == offset)


def find_line(file: int, entry: Entry, offset: int, starts: Iterable[int]) -> bytes | None:
    """Look for the line at `offset` a few lines behind each of the bytes `starts`, None where it is not there."""
    for start in starts:
        for piece in os.pread(file, _WINDOW_BYTES, start).split(b"\n", _NEIGHBOURS)[:_NEIGHBOURS]:
            line = piece + b"\n"
            place = place_of(line)
            if place is not None and place.offset == offset and is_written(line, entry, offset):
                return line
    return None
