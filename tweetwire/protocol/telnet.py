r"""Telnet's sequences in the bytes of a client. They begin with the byte IAC (0xFF, RFC 854).

No character of UTF-8 has this byte, so text is never changed. Every option that the client offers or asks for is refused,
so plain lines remain. Invariants: the output of `Telnet` does not depend on how the bytes were cut into packets. It holds
back at most `HELD_BYTES_MAX` bytes.
"""

import re
from typing import Final

__all__ = ["IAC", "Telnet"]

IAC: Final = 0xFF
"""The first byte of a sequence, as an integer: bytes.__contains__ finds an integer five times faster than bytes."""

_OPTION_BYTES_MAX: Final = 256
HELD_BYTES_MAX: Final = _OPTION_BYTES_MAX + 3

_WILL, _DO = b"\xfb", b"\xfd"
_REFUSAL_OF: Final = {_WILL: b"\xff\xfe", _DO: b"\xff\xfc"}
"""The answer to WILL is DONT, and the answer to DO is WONT."""

# The alternatives, in this order:
# - a doubled IAC, which is one byte 0xFF of data
# - a command of two bytes
# - a command of three bytes, the last of which is its option
# - a subnegotiation, which no client has a reason to send after its options were refused
# - the beginning of one of these
# No sequence holds a line end. Otherwise bytes that only look like telnet could make a line and its reply disappear.
_SEQUENCE: Final = re.compile(
    rb"\xff(?:(?P<data>\xff)|[\xef\xf1-\xf9]|(?P<verb>[\xfb-\xfe])(?P<option>[^\n])|\xfa[^\n\xff]{0,%d}\xff\xf0"
    rb"|(?P<beginning>(?:[\xfb-\xfe]|\xfa[^\n\xff]{0,%d}\xff?)?\Z))" % (_OPTION_BYTES_MAX, _OPTION_BYTES_MAX)
)


class Telnet:
    """A filter that removes telnet's sequences from the stream of one client and collects the answers to them.

    If the bytes after an IAC are not a sequence, they stay, and the line that holds them is refused as ``bad_utf8``.
    """

    __slots__ = ("_answers", "_held")

    def __init__(self) -> None:
        self._held = b""
        self._answers: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """Return `data` without the sequences. The beginning of a sequence is held back until its rest arrives."""
        if IAC not in data and not self._held:
            return data
        data, self._held = self._held + data, b""
        return _SEQUENCE.sub(self._take_out, data)

    def take_answers(self) -> bytes:
        """Return the refusals of all options that the client named since the last call."""
        answers = b"".join(self._answers)
        self._answers.clear()
        return answers

    def _take_out(self, sequence: re.Match[bytes]) -> bytes:
        if sequence["data"] is not None:
            return sequence["data"]
        if sequence["beginning"] is not None:
            self._held = sequence[0]
        elif sequence["verb"] in _REFUSAL_OF:
            self._answers.append(_REFUSAL_OF[sequence["verb"]] + sequence["option"])
        return b""
