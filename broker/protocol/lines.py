"""Bytes as they arrive → whole lines.

Always true: the lines do not depend on how the bytes were cut, and the splitter never holds more than one line's limit.
"""

import re
from typing import Final

__all__ = ["GREETING_LIMIT", "TOO_LONG", "LineSplitter", "is_foreign_protocol"]

GREETING_LIMIT: Final = 16
"""So many bytes of a first line tell HTTP and TLS from ours."""

# A request line or header of HTTP, or the record header of a TLS hello (content type 22, version 3.x).
_FOREIGN = re.compile(
    rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT|PRI) [/*h]"
    rb"|(?:Host|User-Agent|Content-Type): ?"
    rb"|\x16\x03[\x00-\x04]",
    re.IGNORECASE,
)


TOO_LONG: Final = b"\n"
"""Stands in the list of lines where one was longer than the limit and has been skipped; no line can hold a line end."""


class LineSplitter:
    r"""Cuts a stream of bytes at ``\n`` and skips lines above `max_bytes`.

    A ``\r`` anywhere becomes a space: before the line end it is of no meaning, and inside a line it would be white space
    to JSON but a line end to some who read what we store.
    """

    __slots__ = ("_is_skipping", "_rest", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._rest = b""
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, in order, without their ends; an oversize one as `TOO_LONG`."""
        if b"\r" in data:
            data = data.replace(b"\r", b" ")
        lines = data.split(b"\n")
        tail = lines.pop()
        if lines:
            lines[0] = TOO_LONG if self._is_skipping else self._rest + lines[0]
            self._rest, self._is_skipping = b"", False
            if max(len(lines[0]), len(data)) > self.max_bytes:
                lines = [line if self._fits(line) else TOO_LONG for line in lines]
        self._keep(tail)
        return lines

    def _fits(self, line: bytes) -> bool:
        # The one byte more may be the carriage return of a line that just fits.
        return len(line) <= self.max_bytes or (len(line) == self.max_bytes + 1 and line.endswith(b" "))

    def _keep(self, tail: bytes) -> None:
        if not self._is_skipping:
            self._rest += tail
            if len(self._rest) > self.max_bytes + 1:
                self._rest, self._is_skipping = b"", True


def is_foreign_protocol(first_bytes: bytes) -> bool:
    """Whether a connection's first bytes are HTTP or a TLS hello, which must not be run as commands."""
    return _FOREIGN.match(first_bytes) is not None
