"""Read lines from stdin in bursts. A burst ends when no further line has arrived yet.

A file is one burst, so that its events are pipelined. A line that a person types is a burst by itself, so that it is
published at once.
"""

import os
import select
from collections.abc import Iterator
from typing import Final

__all__ = ["LINE_BYTES_MAX", "LineSource"]

READ_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 64 << 20


class LineSource:
    """The lines of an open file descriptor, each with its number from 1 on. Empty lines count, and are left out."""

    def __init__(self, file: int) -> None:
        self.has_ended = False
        self._file = file
        self._number = 0
        self._lines: list[bytes] = []
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def burst(self) -> Iterator[tuple[int, bytes]]:
        """Wait for a line. Yield it and the lines after it that are already there. Raises ValueError for too long a line."""
        has_line = False
        while True:
            while self._lines:
                line = self._lines.pop().strip()
                self._number += 1
                if line:
                    has_line = True
                    yield self._number, line
            if self.has_ended or (has_line and not self._is_ready()):
                return
            self._read()

    def _is_ready(self) -> bool:
        return bool(select.select([self._file], [], [], 0)[0])

    def _read(self) -> None:
        data = os.read(self._file, READ_BYTES)
        self.has_ended = not data
        first, *others = data.split(b"\n")
        self._rest.append(first)
        self._rest_bytes += len(first)
        if self._rest_bytes > LINE_BYTES_MAX:
            raise ValueError(f"line {self._number + 1} is longer than {LINE_BYTES_MAX} bytes")
        if others or self.has_ended:
            *others, rest = [b"".join(self._rest), *others] if others else [b"".join(self._rest), b""]
            self._lines = others[::-1]
            self._rest, self._rest_bytes = [rest], len(rest)
