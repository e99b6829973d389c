"""Lines with a checksum, so that a damaged line is recognised.

A line is the CRC32C of its body as eight hexadecimal digits, a space, and the body.
"""

from typing import Final

from crc32c import crc32c

__all__ = ["checked_line", "line_body"]

_CRC_DIGITS: Final = 8


def checked_line(body: bytes) -> bytes:
    """Return the line for `body`, with a line feed at its end. `body` must not contain a line feed."""
    return b"%08x %b\n" % (crc32c(body), body)


def line_body(line: bytes) -> bytes | None:
    """Return the body of `line`, or None if the line is damaged. `line` comes without its line feed."""
    body = line[_CRC_DIGITS + 1 :]
    try:
        return body if int(line[:_CRC_DIGITS], 16) == crc32c(body) else None
    except ValueError:
        return None
