r"""Convert the event source's lines to events.

A line is ``<sequence>|<kind>`` and the ids that its kind needs, ended by ``\n`` or ``\r\n``::

    666|F|60|50    60 follows 50
    1|U|12|9       12 no longer follows 9
    542532|B       a broadcast to all clients
    43|P|32|56     32 writes to 56
    634|S|32       a status update from 32 to its followers
"""

import re
from typing import Final

from msgspec import Struct

from tweetwire.protocol.errors import Refusal

__all__ = [
    "ID_BYTES_MAX",
    "LINE_BYTES_MAX",
    "SourceEvent",
    "SourceLines",
    "is_id",
    "parse_source_line",
    "parse_source_lines",
]

ID_BYTES_MAX: Final = 64
LINE_BYTES_MAX: Final = 256

# The letters that a topic's name may have, since an id is part of the name of an inbox.
_ID = re.compile(rb"[A-Za-z0-9_.\-]{1,%d}" % ID_BYTES_MAX)
_LINE = re.compile(
    rb"^((?!0+\|)([0-9]{1,18})\|(?:([FUP])\|(%b)\|(%b)|(S)\|(%b)|(B))\r?)$" % (_ID.pattern, _ID.pattern, _ID.pattern),
    re.MULTILINE,
)


class SourceEvent(Struct, frozen=True, gc=False):
    """The event in one line. `sender` and `recipient` are empty if the kind has none.

    `line` is the line as it arrived, without its ``\\n`` but with its ``\\r`` if it had one.
    """

    sequence: int
    kind: bytes
    sender: bytes
    recipient: bytes
    line: bytes


def parse_source_lines(lines: list[bytes]) -> list[SourceEvent] | list[SourceEvent | Refusal]:
    """Return for each line (without its ``\\n``) its event, or a refusal ``bad_event``."""
    found = _LINE.findall(b"\n".join(lines))
    if len(found) == len(lines):
        return [_event(groups) for groups in found]
    return [_event_or_refusal(line) for line in lines]


def parse_source_line(line: bytes) -> SourceEvent:
    """Return the event in a line (without its ``\\n``). Raises Refusal ``bad_event``."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise Refusal(
            "bad_event",
            "not a line of an event source; write <sequence from 1 on>|F|<from>|<to>, |U|, |P|, |S|<from> or |B",
            line,
        )
    return _event(found.groups(b""))


def _event(groups: tuple[bytes, ...]) -> SourceEvent:
    line, number, kind, sender, recipient, status, teller, everybody = groups
    return SourceEvent(int(number), kind or status or everybody, sender or teller, recipient, line)


def _event_or_refusal(line: bytes) -> SourceEvent | Refusal:
    try:
        return parse_source_line(line)
    except Refusal as refusal:
        return refusal


def is_id(text: bytes) -> bool:
    """Return whether `text` is a valid id of a client."""
    return _ID.fullmatch(text) is not None


class SourceLines:
    """Splits the received bytes into lines. Keeps a ``\\r`` at the end of a line, since it is sent on to the clients.

    If a line grows beyond `LINE_BYTES_MAX`, its beginning is returned, which is not a valid event, and the rest is skipped.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their ``\\n``."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and self._is_skipping:
            del lines[0]
            self._is_skipping = False
        if self._is_skipping:
            self._rest = b""
        elif len(self._rest) > LINE_BYTES_MAX:
            lines.append(self._rest)
            self._rest, self._is_skipping = b"", True
        return lines

    def end(self) -> bytes:
        """Return the bytes after the last line end, which may be an incomplete line."""
        rest, self._rest = self._rest, b""
        return rest
