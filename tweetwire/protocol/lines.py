"""Split the bytes that arrive into whole lines.

Invariants: the lines do not depend on how the bytes were cut into packets. The splitter holds at most one line of the
largest size.
"""

import re
from typing import Final

__all__ = ["GREETING_LIMIT", "TOO_LONG", "LineSplitter", "is_foreign_protocol"]

# This is an integer, because bytes.__contains__ finds an integer several times faster than a bytes object.
_CARRIAGE_RETURN: Final = ord("\r")

GREETING_LIMIT: Final = 16
"""The number of bytes at which a first line can be told apart from HTTP and TLS."""

# A request line or header of HTTP, or the record header of a TLS hello (content type 22, version 3.x).
_FOREIGN = re.compile(
    rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT|PRI) [/*h]"
    rb"|(?:Host|User-Agent|Content-Type): ?"
    rb"|\x16\x03[\x00-\x04]",
    re.IGNORECASE,
)


TOO_LONG: Final = b"\n"
"""Stands for a line that was longer than the limit and was skipped. It holds a line end, so no other line equals it."""


class LineSplitter:
    r"""Cut a stream of bytes at ``\n`` and skip lines longer than `max_bytes`.

    Each ``\r`` becomes a space. Before a line end it has no meaning. Inside a line, JSON would read it as white space, but
    some readers of stored lines would read it as a line end.
    """

    __slots__ = ("_is_skipping", "_rest", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._rest = b""
        self._is_skipping = False

    @property
    def held_bytes(self) -> int:
        """The number of bytes held of a line that is not complete."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, in order, without their ends; a line that is too long is `TOO_LONG`."""
        if _CARRIAGE_RETURN in data:
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
        # The extra byte may be the carriage return of a line that has exactly the largest size.
        return len(line) <= self.max_bytes or (len(line) == self.max_bytes + 1 and line.endswith(b" "))

    def _keep(self, tail: bytes) -> None:
        if not self._is_skipping:
            self._rest += tail
            if len(self._rest) > self.max_bytes + 1:
                self._rest, self._is_skipping = b"", True


def is_foreign_protocol(first_bytes: bytes) -> bool:
    """Whether the first bytes of a connection are HTTP or a TLS hello, which must not be run as commands."""
    return _FOREIGN.match(first_bytes) is not None
