"""Let the operating system notice a client whose machine or network is gone without the end of its connections.

Such a client would hold its producers and its events in flight forever, since a broker may wait for its next command as long as
it likes.
"""

import socket
from typing import Final

from anyio.abc import SocketAttribute, SocketStream

__all__ = ["watch_client"]

_WATCH: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 60_000}
"""A probe is sent after 20 seconds without data, and then every 10 seconds.

The connection ends a minute after the client's last sign of life. On Linux, TCP_USER_TIMEOUT (ms) decides that, for probes and
for data that was not acknowledged; elsewhere, the number of probes does.
"""


def watch_client(stream: SocketStream) -> None:
    """Have the connection ended after a minute without any sign of life from the client's machine."""
    connection = stream.extra(SocketAttribute.raw_socket)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _WATCH.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
