"""The HTTP port from which Prometheus reads a program's metrics.

Threads serve it, so that it answers while the event loop is busy. Always true:

- At most `CONNECTIONS_MAX` connections have a thread.
- A connection is ended about `CONNECTION_S` seconds after it began.
- At most `HEAD_BYTES_MAX` bytes of a request are read.
"""

import io
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import make_wsgi_app

from tweetwire.runtime.hosts import is_known_host

__all__ = ["serve_metrics_on"]

CONNECTIONS_MAX: Final = 16
CONNECTION_S: Final = 10.0
HEAD_BYTES_MAX: Final = 16 << 10
WAITING_MAX: Final = 128
ROOM_S: Final = 0.2

logger = structlog.stdlib.get_logger()


def serve_metrics_on(host: str, port: int, names: Collection[str]) -> None:
    """Start a thread that serves the metrics of this process.

    It answers only requests whose `Host` header is an IP address, ``localhost`` or one of `names`. Raises OSError if the
    port cannot be used.
    """
    server = _Server((host, port), _Handler)
    server.set_app(_only_known_hosts(make_wsgi_app(), frozenset({"localhost", *(name.lower() for name in names)})))
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a limited number of connections. At the limit, it ends the oldest connection for a new one."""

    daemon_threads = True
    request_queue_size = WAITING_MAX

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        # Each connection and its deadline in monotonic seconds, the oldest connection first.
        self._open: dict[socket.socket, float] = {}
        self._has_room = threading.Condition()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, or close it if no place becomes free in `ROOM_S` seconds."""
        with self._has_room:
            if len(self._open) >= CONNECTIONS_MAX:
                _cut(next(iter(self._open)))
            if not self._has_room.wait_for(lambda: len(self._open) < CONNECTIONS_MAX, ROOM_S):
                self.close_request(request)
                return
            self._open[request] = time.monotonic() + CONNECTION_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection after its thread has served it."""
        with self._has_room:
            self._open.pop(request, None)
            self._has_room.notify()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections past their deadline; `serve_forever` calls this twice a second."""
        now = time.monotonic()
        with self._has_room:
            for request, until in self._open.items():
                if until > now:
                    break
                _cut(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error that ended a connection. An OSError is not a bug: the client left or was too slow."""
        is_bug = not isinstance(sys.exc_info()[1], OSError)
        (logger.exception if is_bug else logger.debug)("metrics connection failed", peer=client_address[0])


class _Handler(WSGIRequestHandler):
    timeout = CONNECTION_S

    def setup(self) -> None:
        """Limit how much of the request is read."""
        super().setup()
        self.rfile = io.BufferedReader(_Head(self.rfile))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — the name is the base class's
        """Do not log requests."""


class _Head(io.RawIOBase):
    """A stream that ends after the first `HEAD_BYTES_MAX` bytes of another one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = HEAD_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(min(len(buffer), self._left)) if self._left else b""
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def _cut(request: socket.socket) -> None:
    """Shut a connection down; the read or write of its thread then ends at once."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _only_known_hosts(app: Any, names: Collection[str]) -> Callable[..., Iterable[bytes]]:
    def guarded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if is_known_host(host, names):
            answer: Iterable[bytes] = app(environ, start_response)
            return answer
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"the host name {host!r} is not allowed here; allow it with --metrics-allowed-host\n".encode()]

    return guarded
