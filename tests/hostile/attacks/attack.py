"""The description of an attack, and the sockets that attacks use."""

import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tests.hostile.target import Kind, Target

__all__ = ["Attack", "connect", "flood", "reset", "say", "send_and_wait"]

PATIENCE_S: Final = 60.0
RESET: Final = struct.pack("ii", 1, 0)
PIECE_BYTES: Final = 64 << 10


class Attack(NamedTuple):
    """One attack. `run` takes the target and a size (1 is the whole attack), and returns how many steps it did."""

    name: str
    kind: Kind
    run: Callable[[Target, float], int]
    unit: str


def connect(port: int) -> socket.socket:
    """Open a connection to a port of this machine."""
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def reset(connection: socket.socket) -> None:
    """Close a connection by RST."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def say(port: int, *lines: str, answers: int | None = None) -> list[str]:
    """Send lines on a new connection, wait for `answers` answers (by default one for each line), and return them."""
    wanted = len(lines) if answers is None else answers
    with connect(port) as connection, connection.makefile("rb") as incoming:
        incoming.readline()
        connection.sendall("".join(f"{line}\n" for line in lines).encode())
        return [incoming.readline().decode() for _ in range(wanted)]


def flood(port: int, data: bytes, *, is_read: bool, seconds: float) -> int:
    """Send `data` until all is sent and the server is silent for a second, or `seconds` are over.

    With `is_read`, received data is read. The function also ends when the server closes the connection. Returns the number of
    bytes that were sent.
    """
    sent, deadline = 0, time.monotonic() + seconds
    with connect(port) as connection, selectors.DefaultSelector() as selector, suppress(ConnectionError):
        connection.setblocking(False)
        reading = selectors.EVENT_READ if is_read else 0
        selector.register(connection, selectors.EVENT_WRITE | reading)
        while time.monotonic() < deadline:
            if sent == len(data) and not is_read:
                selector.unregister(connection)
                time.sleep(
                    min(1.0, max(0.0, deadline - time.monotonic()))
                )  # the connections stay open and unread while the victim pings
                break
            if sent == len(data):
                selector.modify(connection, selectors.EVENT_READ)
            ready = selector.select(1.0)
            if not ready and sent == len(data):
                break
            for _, events in ready:
                if events & selectors.EVENT_READ and not connection.recv(1 << 20):
                    return sent
                if events & selectors.EVENT_WRITE:
                    sent += connection.send(data[sent : sent + PIECE_BYTES])
    return sent


def send_and_wait(port: int, lines: list[str]) -> None:
    """Send lines and then a ping, and read all output until the pong."""
    with connect(port) as connection, connection.makefile("rb") as incoming:
        connection.sendall("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass") + b"ping\n")
        while (line := incoming.readline()) != b"+PONG\n":
            assert line, "the broker closed the connection"
