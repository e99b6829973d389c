"""Connections that are reset before the server has accepted them."""

import os
import signal
import socket
import struct

__all__ = ["reset_while_stopped"]

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def reset_while_stopped(pid: int, port: int, count: int = 100) -> None:
    """Stop a process, connect to its port and reset the connection `count` times, and let the process continue.

    Then the event loop accepts all of these connections at once, and each has lost its peer.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(count):
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    finally:
        os.kill(pid, signal.SIGCONT)
