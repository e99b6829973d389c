"""Who listens where: every port of the stack is asked for before anything starts, so that a taken one costs nothing."""

import socket
from collections.abc import Sequence

from msgspec import Struct

from broker.errors import StartError

__all__ = ["Port", "claim", "free_port"]

_HOST = "127.0.0.1"


class Port(Struct, frozen=True):
    """A port wanted: its number (0: any free one), who needs it, and the flag that changes it."""

    number: int
    user: str
    flag: str


def claim(ports: Sequence[Port]) -> list[int]:
    """Return the number of each port, in their order, with free ones in place of 0.

    All are held until all are found, so that no number comes twice. Raises StartError that names each taken port, who
    needs it and the flag that changes it.
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
    """Return a port that nobody listens on."""
    with _listen(0) as listener:
        return int(listener.getsockname()[1])


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
