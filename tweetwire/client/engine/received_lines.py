"""Split the bytes from the broker into lines."""

from tweetwire.protocol.errors import ProtocolError

__all__ = ["ReceivedLines"]


class ReceivedLines:
    """Splits bytes into lines, and keeps an incomplete line. The lines do not depend on how the bytes arrive."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        # The pieces of an incomplete line. They are joined only once, because a line may be long.
        self._pieces: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their line ends."""
        head, *lines = data.split(b"\n")
        self._pieces.append(head)
        self._bytes += len(head)
        if lines:
            lines.insert(0, b"".join(self._pieces))
            self._pieces = [lines.pop()]
            self._bytes = len(self._pieces[0])
        return lines

    def check_length(self) -> None:
        """Raise ProtocolError if the incomplete line is already too long."""
        if self._bytes > self._line_bytes_max:
            raise ProtocolError(f"a line is longer than {self._line_bytes_max} bytes", b"".join(self._pieces[:2]))

    def clear(self) -> None:
        """Drop the incomplete line, because a new connection begins with a new line."""
        self._pieces, self._bytes = [], 0
