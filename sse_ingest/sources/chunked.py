"""HTTP/1.1's chunked transfer coding (RFC 9112, section 7.1), however the bytes were cut.

http.client hands out one chunk at a time, and a stream has one or more for each event; taking whatever the socket has and
finding all of its chunks at once costs a tenth of that.
"""

import re

__all__ = ["Chunks"]

_LINE_BYTES_MAX = 65_536
_SIZE = re.compile(rb"[ \t]*0*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class Chunks:
    """Decodes one body. `is_ended` tells that its last chunk, and what trails it, is there; `fault` that it is broken."""

    def __init__(self) -> None:
        self.is_ended = False
        self.fault: str | None = None
        self._rest = b""
        self._left = 0
        self._is_behind_content = False
        self._is_trailing = False

    def feed(self, data: bytes) -> bytes:
        """Take in bytes and return the content among them, up to a fault."""
        data = self._rest + data
        self._rest = b""
        content: list[bytes] = []
        place = 0
        while not self.is_ended and self.fault is None:
            if self._left:
                piece = data[place : place + self._left]
                content.append(piece)
                place += len(piece)
                self._left -= len(piece)
                self._is_behind_content = not self._left
            end = data.find(b"\n", place)
            if self._left or end < 0:
                self._rest = data[place:]
                break
            self._take(data[place:end].removesuffix(b"\r"))
            place = end + 1
        if len(self._rest) > _LINE_BYTES_MAX:
            self.fault = "a line of the chunked coding is too long"
        return b"".join(content)

    def _take(self, line: bytes) -> None:
        if self._is_behind_content:
            self._is_behind_content = False
            if line:
                self.fault = "a chunk is longer than its size"
        elif self._is_trailing:
            self.is_ended = not line
        elif size := _SIZE.fullmatch(line):
            self._left = int(size[1], 16)
            self._is_trailing = not self._left
        else:
            self.fault = f"a chunk's size cannot be read: {line[:40]!r}"
