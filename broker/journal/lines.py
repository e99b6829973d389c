"""Convert records to lines of JSON with a checksum, and back."""

import msgspec
from msgspec import Struct

from broker.journal.records import Record
from tweetwire.checked_lines import checked_line, line_body

__all__ = ["Generation", "parse_line", "record_line"]


class Generation(Struct, tag="generation"):
    """The first and the last line of a snapshot: the number of the journal that continues it."""

    journal: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record | Generation).decode


def record_line(record: Record | Generation) -> bytes:
    """Return a record's line, including the line feed."""
    return checked_line(_encode(record))


def parse_line(line: bytes) -> Record | Generation | None:
    """Return the record in a line without its line feed, None if the line is damaged."""
    body = line_body(line)
    try:
        return None if body is None else _decode(body)
    except (ValueError, msgspec.MsgspecError):
        return None
