"""Open a connection of the blocking client and wait for the broker's greeting."""

import select
import socket
from typing import TYPE_CHECKING, NamedTuple

from tweetwire.client.addresses import split_address
from tweetwire.client.greeting import GREETING_MAX, first_bytes, see_greeting, unreachable, watch_peer

if TYPE_CHECKING:
    import ssl

__all__ = ["BlockingOpened", "is_readable", "open_socket"]


class BlockingOpened(NamedTuple):
    """A socket after the broker's greeting, and the data received so far, which begins with the greeting."""

    socket: socket.socket
    data: bytes


def open_socket(address: str, tls: "ssl.SSLContext | None", timeout_s: float) -> BlockingOpened:
    """Connect, and wait for the greeting. `timeout_s` is the longest wait for each step, in seconds.

    Raises BrokerUnreachable, TlsFailed, and Refusal if the broker accepts no more connections.
    """
    host, port = split_address(address)
    try:
        connection = socket.create_connection((host, port), timeout_s)
        if tls is not None:
            connection = tls.wrap_socket(connection, server_hostname=host)
    except OSError as error:
        raise unreachable(address, error, tls) from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch_peer(connection)
        return BlockingOpened(connection, _greeting(address, connection, tls))
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError | EOFError):
            raise unreachable(address, error, tls) from error
        raise


def _greeting(address: str, connection: socket.socket, tls: "ssl.SSLContext | None") -> bytes:
    connection.sendall(first_bytes(tls))
    data = b""
    while b"\n" not in data and len(data) < GREETING_MAX:
        some = connection.recv(GREETING_MAX)
        if not some:
            raise EOFError
        data += some
    see_greeting(address, data.partition(b"\n")[0], tls)
    return data


def is_readable(connection: socket.socket, within_s: float | None) -> bool:
    """Return whether bytes or the end of the connection arrive within `within_s` seconds; None waits without limit."""
    # The TLS layer may hold bytes that it has already read from the socket. Only its sockets have this method.
    pending = getattr(connection, "pending", None)
    if pending is not None and pending():
        return True
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(None if within_s is None else 1000 * within_s))
