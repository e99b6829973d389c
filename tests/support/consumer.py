"""A connection that types commands to a broker."""

import json
import socket
from typing import Any, Self

from tests.support.commands import PATIENCE_S
from tests.support.processes import BrokerProcess

__all__ = ["Consumer"]


class Consumer:
    """A connection that types commands."""

    def __init__(self, broker: BrokerProcess, *commands: str) -> None:
        self._connection = socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S)
        self._lines = self._connection.makefile("rb")
        self._lines.readline()
        self.type(*commands)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._connection.close()

    def type(self, *commands: str) -> list[dict[str, Any]]:
        """Send commands, and return the events that arrived before the last reply."""
        self._connection.sendall("".join(f"{command}\n" for command in (*commands, "ping")).encode())
        events, line = [], b""
        while line != b"+PONG\n":
            line = self._lines.readline()
            assert not line.startswith(b"-"), line
            if line.startswith(b"{"):
                events.append(json.loads(line))
        return events
