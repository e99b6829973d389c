"""Claim every port of the stack before any program starts, so that a port in use is reported at once."""

import socket
from collections.abc import Sequence

from msgspec import Struct

from tweetwire.protocol.errors import StartError

__all__ = ["Port", "claim", "free_port", "is_listened_on"]

_HOST = "127.0.0.1"


class Port(Struct, frozen=True):
    """A wanted port: its number (0: any free one), the program that needs it, and the flag that changes it."""

    number: int
    user: str
    flag: str


def claim(ports: Sequence[Port]) -> list[int]:
    """Return the number of each port, in order, with free ports in place of 0.

    All ports are held until all are found, so that no number is returned twice.

    Raises:
        StartError: some ports are in use; the text names each with its program and flag.
    """
    listeners: list[socket.socket] = []
    taken: list[Port] = []
    try:
        for port in ports:
            try:
                listeners.append(_listen(port.number))
            except OSError:
                taken.append(port)
        if taken:
            raise StartError(_sentence(taken))
        return [listener.getsockname()[1] for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


def free_port() -> int:
    """Return a free port."""
    with _listen(0) as listener:
        return int(listener.getsockname()[1])


def is_listened_on(port: int) -> bool:
    """Whether a program listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


def _listen(number: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, number))
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener


def _sentence(taken: Sequence[Port]) -> str:
    each = "; ".join(f"port {port.number} for {port.user} is in use, choose another with {port.flag}" for port in taken)
    return f"{each} (0: any free port), or stop the program that has it"
