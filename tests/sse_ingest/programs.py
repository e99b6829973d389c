"""The ingester and the simulator as processes, and a person at the telnet port."""

import socket
from pathlib import Path
from typing import Self

from tests.support.processes import Server


class Program(Server):
    """``python -m <module>`` in a separate folder."""

    def __init__(self, module: str, folder: Path, *flags: object) -> None:
        super().__init__(module, folder / f"{module}.log", *flags, folder=folder)


class Person:
    """Types commands at the telnet port and reads the output."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=15)
        self._lines = self._socket.makefile("r", encoding="utf-8", newline="\r\n")
        self.greeting = self.line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def type(self, command: str) -> None:
        """Send a command."""
        self._socket.sendall(command.encode() + b"\r\n")

    def line(self) -> str:
        """Read a line; empty at the end."""
        return self._lines.readline().rstrip("\r\n")

    def answer(self) -> str:
        """Return the next line that is neither a tweet nor a notice of tweets that this slow reader has missed."""
        while (line := self.line()).startswith(("tweet: ", "(")):
            pass
        if not line:
            raise ConnectionError("the ingester closed the connection")
        return line

    def ask(self, command: str) -> str:
        """Send a command and return its answer, which may have several lines."""
        self.type(command)
        if command.split(maxsplit=1)[0] not in ("status", "workers", "hashtags", "help"):
            return self.answer()
        lines = list(iter(self.answer, "."))
        return "\n".join(lines)
