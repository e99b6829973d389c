"""End a connection that another thread reads."""

import contextlib
import os
import socket
import threading

__all__ = ["Cutter"]

_PIECE_BYTES = 1 << 20


class Cutter:
    """Holds a duplicate descriptor of a connection, so that the reading thread may close its own descriptor at any time.

    The reader's descriptor itself cannot be used: before this thread uses its number, the system may have given the number to
    another file.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._twin: socket.socket | None = None

    def hold(self, way: socket.socket) -> None:
        """Hold the connection `way` instead of the previous one."""
        with self._lock:
            self._close()
            self._twin = socket.socket(fileno=os.dup(way.fileno()))

    def cut(self) -> None:
        """End the connection: a waiting read returns at once, and so does every later one."""
        with self._lock, contextlib.suppress(OSError):
            if self._twin is not None:
                self._twin.shutdown(socket.SHUT_RDWR)
                # The reader would still get the bytes that have already arrived, at most some megabytes. Discard them. No more
                # arrive, because the kernel answers further bytes with a reset.
                while self._twin.recv(_PIECE_BYTES, socket.MSG_DONTWAIT):
                    pass

    def release(self) -> None:
        """Release the held connection."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._twin is not None:
            self._twin.close()
            self._twin = None
