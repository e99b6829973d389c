"""One HTTP connection: uvicorn's protocol with the limits that uvicorn lacks.

Always true:

- a connection has a place within the limits of `Admission` from its accept, TLS handshake included, to its end;
- a connection that has sent no whole request in time is closed, and so is one that stops within the head of a later request;
- an error within the parser ends this connection alone.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from broker.strangers_log import strangers_log
from tweetwire.runtime.admission import AdmissionPlace, Closing

__all__ = ["GuardedHttp", "GuardedWebSocket", "Host", "Serve"]

HEAD_S: Final = 10.0
UNSENT_BYTES: Final = 64 << 10
"""The unsent bytes of a connection above which a sender waits."""


class Host(Protocol):
    """The part of the door that its connections use."""

    config: uvicorn.Config
    state: ServerState

    @property
    def serve(self) -> "Serve":
        """The function that serves each request."""
        ...

    def note_closed(self) -> None:
        """Count the end of a connection."""
        ...


class GuardedHttp(H11Protocol):
    """A connection of the door, which has a place, from its accept to its end or its upgrade to a WebSocket."""

    def __init__(self, door: Host, accepted: socket.socket) -> None:
        super().__init__(config=door.config, server_state=door.state, app_state={})
        self.place: AdmissionPlace | None = None
        # Called when the client has disconnected, while a request of it waits
        self.when_lost: Callable[[], None] | None = None
        self._door = door
        self._accepted = accepted
        self._is_begun = self._is_over = False
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to serve the connection. A TLS handshake is over by now."""
        self._is_begun = True
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self.app = partial(self._door.serve, self)

    def data_received(self, data: bytes) -> None:
        """Parse bytes. The head of a request must be complete within `HEAD_S` seconds after its first byte."""
        if self._is_over:
            return
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 — an error here would be logged with a traceback for each hostile client
            strangers_log.warning("ended an HTTP connection that broke the protocol", reason=str(error)[:200])
            self.abort()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_S, self.abort)

    def on_response_complete(self) -> None:
        """Begin the next request of the connection, if its head has arrived."""
        self._forget_head()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the place, and wake the request that waits."""
        self._is_over = True
        self._forget_head()
        super().connection_lost(exc)
        self.leave()
        if self.when_lost is not None:
            self.when_lost()
            self.when_lost = None
        # It refers to this object.
        self.app = self._door.config.loaded_app

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection and its place over to a WebSocket."""
        place, self.place = self.place, None
        self.ws_protocol_class = partial(GuardedWebSocket, self._door, place)  # type: ignore[assignment]
        super().handle_websocket_upgrade(event)
        self._forget_head()
        self._is_over = True
        self.app = self._door.config.loaded_app

    def leave(self) -> None:
        """Give the place back."""
        place, self.place = self.place, None
        if place is not None:
            place.leave()
            self._door.note_closed()

    def close_stranger(self, why: Closing) -> None:
        """End the connection, which was silent for too long or makes room for another one."""
        self.abort()

    def abort(self) -> None:
        """End the connection without sending what is unsent."""
        if self._is_begun:
            self.transport.abort()
        else:
            # It ends the TLS handshake.
            with suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """A connection that was upgraded to a WebSocket. It keeps its place."""

    def __init__(self, door: Host, place: AdmissionPlace | None, **settings: Any) -> None:
        super().__init__(**settings)
        self.place = place
        self._door = door
        self.app = partial(door.serve, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the place."""
        super().connection_lost(exc)
        place, self.place = self.place, None
        if place is not None:
            place.leave()
            self._door.note_closed()
        self.app = self._door.config.loaded_app

    def abort(self) -> None:
        """End the connection without sending what is unsent."""
        self.transport.abort()


Serve: TypeAlias = Callable[[GuardedHttp | GuardedWebSocket, Scope, Receive, Send], Awaitable[None]]
"""Serves one request of a connection."""
