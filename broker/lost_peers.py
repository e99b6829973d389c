"""Let the operating system notice a client whose machine or network is gone without the end of its connections.

Such a client would hold its producers and its events in flight forever, since a broker may wait for its next command as long as
it likes.
"""

import socket
from typing import Final

from anyio.abc import SocketAttribute, SocketStream

__all__ = ["watch_client"]

LOST_AFTER_S: Final = 60.0
_MS_MAX: Final = (1 << 31) - 1
_PROBES: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4}
"""A probe is sent after 20 seconds without data, and then every 10 seconds."""


def watch_client(stream: SocketStream, stalled_s: float) -> None:
    """Have the connection ended a minute after the last sign of life from the client's machine.

    On Linux, TCP_USER_TIMEOUT decides that, for probes and for data that was not acknowledged; elsewhere, the number of probes
    does. Linux also ends a connection after that time if the client is alive but does not read. A client may do that for
    `stalled_s` seconds, so the timeout is not shorter.
    """
    connection = stream.extra(SocketAttribute.raw_socket)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    timeout_ms = min(int(max(LOST_AFTER_S, stalled_s) * 1000), _MS_MAX)
    for name, value in {**_PROBES, "TCP_USER_TIMEOUT": timeout_ms}.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
