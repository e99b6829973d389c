"""Run a program on a separate pseudo-terminal, as a person does."""

import os
import pty
import re
import select
import sys
import time
from typing import Final, Self

__all__ = ["PATIENCE_S", "ProgramTerminal"]

PATIENCE_S: Final = 60.0
# Sequences that move the cursor, erase or colour. An incomplete sequence stays in the text.
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|[()][A-Z0-9]|[=>78])|\r")


class ProgramTerminal:
    """A Python program, run as ``python -m WORDS``, on a terminal with the given variables."""

    def __init__(self, *words: str, **variables: str) -> None:
        self.written = ""
        self.pid, self._handle = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm", **variables}
            os.execv(sys.executable, [sys.executable, "-m", *words])
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    @property
    def shown(self) -> str:
        """The output without escape sequences."""
        return _ESCAPES.sub("", self.written)

    def press(self, keys: bytes) -> None:
        os.write(self._handle, keys)

    def until(self, text: str) -> None:
        """Read until `text` has been shown after the text that the last call waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while (at := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, self.written
            self._read()
        self._seen = at + len(text)

    def status(self) -> int:
        """Read until the program has ended, and return its status."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            assert time.monotonic() < deadline, self.written
            self._read()
        while self._read():
            pass
        return os.waitstatus_to_exitcode(found[1])

    def _read(self) -> bool:
        """Read the output that has arrived. Returns whether there was some."""
        if not select.select([self._handle], [], [], 0.05)[0]:
            return False
        try:
            data = os.read(self._handle, 65536)
        except OSError:
            time.sleep(0.01)  # Linux's EIO: the other side of the terminal is closed, and the end is near.
            return False
        self.written += data.decode(errors="replace")
        return bool(data)
