"""The port of the gateway: it accepts connections, and closes those that are silent or do not read.

uvicorn's protocol does the HTTP. uvicorn's server is not used, since it handles signals and knows no limits.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from typing import Any, Final

import anyio
import structlog
import uvicorn
from anyio.abc import SocketAttribute
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from broker.core import PartCounts
from broker.gateways.http.answers import error_of
from broker.gateways.http.options import HttpOptions
from broker.gateways.http.protocol import GuardedHttp, Serve
from broker.strangers_log import strangers_log
from tweetwire.protocol.errors import Refusal
from tweetwire.runtime.admission import Admission
from tweetwire.runtime.listening import accept_each, listen, parts_of

__all__ = ["Door"]

TICK_S: Final = 0.5
STALLS_EVERY_S: Final = 2.0
KEEP_ALIVE_S: Final = 60
HEAD_BYTES_MAX: Final = 16 << 10
HANDSHAKE_S: Final = 10.0
DRAIN_S: Final = 5.0
POLL_S: Final = 0.01

logger = structlog.stdlib.get_logger()


class Door:
    """Accepts connections and gives each request to `serve`."""

    def __init__(self, options: HttpOptions, counts: PartCounts, serve: Serve) -> None:
        self.admission = Admission(options.admission)
        self._serve = serve
        self.state = ServerState()
        self.config = _config(options)
        self._options = options
        self._counts = counts
        self._open = 0
        # The unsent bytes of connections that have some, and since when (monotonic seconds) the number has not become smaller
        self._unsent: dict[Any, tuple[int, float]] = {}

    @property
    def serve(self) -> Serve:
        """The function that serves each request."""
        return self._serve

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Listen until the end of the block. Yields the address, host:port. Raises StartError if the port is in use."""
        self.config.load()
        _relay_logs()
        host = self._options.host

        def begin(accepted: tuple[socket.socket, Any]) -> None:
            tasks.start_soon(self._welcome, accepted[0])

        async with (
            await listen(host, self._options.port, "--http-port") as listener,
            anyio.create_task_group() as tasks,
        ):
            for part in parts_of(listener):
                # The raw socket, since anyio's stream would take the place of uvicorn's protocol.
                listening = part.extra(SocketAttribute.raw_socket)
                accept = partial(asyncio.get_running_loop().sock_accept, listening)
                tasks.start_soon(accept_each, accept, begin)
            tasks.start_soon(self._tick)
            try:
                yield f"{host}:{listener.extra(SocketAttribute.local_port)}"
            finally:
                tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._drain()

    def note_opened(self) -> None:
        """Count a connection."""
        self._open += 1
        self._counts.set_to("connections", self._open)

    def note_closed(self) -> None:
        """Count the end of a connection."""
        self._open -= 1
        self._counts.set_to("connections", self._open)

    async def _welcome(self, accepted: socket.socket) -> None:
        """Give a connection a place, before its TLS handshake, and begin to serve it."""
        protocol, context = GuardedHttp(self, accepted), self._options.context()
        try:
            host = accepted.getpeername()[0]
            protocol.place = self.admission.admit(host, time.monotonic(), protocol.close_stranger)
        except Refusal as refusal:
            strangers_log.warning("an HTTP connection was refused", reason=refusal.text)
            with closing(accepted), suppress(OSError):
                if context is None:
                    accepted.send(_too_many(refusal))
            return
        except OSError:
            # The peer has reset the connection already.
            accepted.close()
            return
        self.note_opened()
        handshake_s = None if context is None else HANDSHAKE_S
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=handshake_s
            )
        except (OSError, TimeoutError) as error:
            strangers_log.warning("TLS handshake failed", port="http", reason=type(error).__name__)
            protocol.leave()
            accepted.close()
        except BaseException:
            protocol.leave()
            accepted.close()
            raise

    async def _drain(self) -> None:
        """Close idle connections, wait for the others to finish their requests, and abort those that do not."""
        for connection in list(self.state.connections):
            connection.shutdown()
        with anyio.move_on_after(DRAIN_S):
            while self.state.connections or self.state.tasks:
                await anyio.sleep(POLL_S)
        for task in list(self.state.tasks):
            task.cancel()
        for connection in list(self.state.connections):
            connection.transport.abort()
        with anyio.move_on_after(DRAIN_S):
            while self.state.connections or self.state.tasks:
                await anyio.sleep(POLL_S)

    async def _tick(self) -> None:
        stalls_at = 0.0
        while True:
            await anyio.sleep(TICK_S)
            now_s = time.monotonic()
            self.admission.close_silent(now_s)
            if now_s >= stalls_at:
                stalls_at = now_s + STALLS_EVERY_S
                self._abort_stalled(now_s)

    def _abort_stalled(self, now_s: float) -> None:
        """Abort connections whose peers have taken none of their unsent bytes for too long."""
        unsent: dict[Any, tuple[int, float]] = {}
        for connection in list(self.state.connections):
            size = connection.transport.get_write_buffer_size()
            if not size:
                continue
            before, since_s = self._unsent.get(connection, (size, now_s))
            if size < before:
                since_s = now_s
            unsent[connection] = (size, since_s)
            if now_s - since_s > self._options.limits.stalled_s:
                strangers_log.warning("ended an HTTP connection that did not read", unsent=size)
                self._counts.add("stalled")
                connection.transport.abort()
        self._unsent = unsent


def _too_many(refusal: Refusal) -> bytes:
    answer = error_of(refusal)
    head = (
        f"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {len(answer.body)}\r\n"
    )
    return f"{head}connection: close\r\nretry-after: 1\r\n\r\n".encode() + answer.body


def _config(options: HttpOptions) -> uvicorn.Config:
    """Return uvicorn's settings. No header of a client changes its address, and nothing is compressed."""
    return uvicorn.Config(
        _no_application,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        http="h11",
        ws="websockets-sansio",
        ws_max_size=options.limits.line_bytes + 1,
        ws_per_message_deflate=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )


async def _no_application(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("each connection sets its own application")


def _relay_logs() -> None:
    """Write the log of uvicorn and asyncio's transports into the broker's, rate-limited."""
    for name in ("uvicorn.error", "uvicorn.access"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [_Relay()], False
        log.setLevel(logging.WARNING)


class _Relay(logging.Handler):
    """Logs a bug with its traceback. Clients cause all other messages, so their number is limited."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            logger.error("a bug ended an HTTP request", exc_info=record.exc_info)
        else:
            strangers_log.warning("HTTP", message=record.getMessage()[:200])
