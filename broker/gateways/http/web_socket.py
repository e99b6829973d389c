"""``/ws``: the line protocol as it is, one line a message. A browser can speak it.

The stream of messages is an ordinary connection of the broker, with its limits, its login and its shutdown.
"""

from collections.abc import Mapping
from typing import Final

import anyio
import structlog
from anyio.abc import ByteStream
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from broker.core import Access
from broker.gateways.http.answers import HttpError, error_of
from broker.gateways.http.credentials import identify
from broker.gateways.http.guard import Guard
from broker.gateways.http.options import HttpOptions
from broker.gateways.http.protocol import GuardedWebSocket
from broker.login import STRANGER_BYTES
from broker.server import Server
from tweetwire.protocol.errors import Refusal
from tweetwire.runtime.admission import AdmissionPlace
from tweetwire.runtime.listening import Peer

__all__ = ["LineMessages", "WebSockets"]

PATH: Final = "/ws"
CLOSED: Final = 1000

logger = structlog.stdlib.get_logger()


class WebSockets:
    """Serves WebSockets. Without the header `Authorization`, a client logs in with ``hello``, as on the broker's port."""

    def __init__(self, server: Server, options: HttpOptions, guard: Guard) -> None:
        self._server = server
        self._options = options
        self._guard = guard

    async def serve(
        self, protocol: GuardedWebSocket, scope: Scope, receive: Receive, send: Send, headers: Mapping[str, str]
    ) -> None:
        """Serve one WebSocket until either side ends it."""
        place, client = protocol.place, protocol.client
        if place is None or client is None:
            return
        try:
            self._guard.check(headers)
            if scope["path"] != PATH:
                raise HttpError(404, "not_found", f"the path of the WebSocket is {PATH}")
            access = None
            if self._server.logins.users is not None and "authorization" in headers:
                access = (await identify(self._server.logins, headers["authorization"], place.address)).access
        except (Refusal, HttpError) as error:
            await _refuse(error, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        peer = Peer(client[0], f"{client[0]}:{client[1]}")
        stream = LineMessages(protocol, receive, send, self._options.limits.line_bytes)
        try:
            await self._serve_lines(stream, peer, place, protocol, access)
        finally:
            await stream.aclose()

    async def _serve_lines(
        self,
        stream: "LineMessages",
        peer: Peer,
        place: AdmissionPlace,
        protocol: GuardedWebSocket,
        access: Access | None,
    ) -> None:
        try:
            await self._server.serve_stream(stream, peer, place, access)
        except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            protocol.abort()
        except* Exception:
            logger.exception("a bug ended a WebSocket")
            protocol.abort()


async def _refuse(error: Refusal | HttpError, receive: Receive, send: Send) -> None:
    """Answer the handshake with an HTTP error."""
    answer = error_of(error)
    await receive()
    headers = [(b"content-type", answer.content_type.encode())]
    await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})


class LineMessages(ByteStream):
    """A WebSocket as a stream of bytes: each message is one line, without its end."""

    def __init__(self, protocol: GuardedWebSocket, receive: Receive, send: Send, line_bytes: int) -> None:
        self._protocol = protocol
        self._receive = receive
        self._send = send
        self._line_bytes = line_bytes
        self._received = b""
        # The beginning of a line whose end was not given yet
        self._unsent = b""
        protocol.conn.max_message_size = STRANGER_BYTES

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Return bytes of the next message. A client that may send much may also send long messages."""
        if max_bytes > STRANGER_BYTES:
            self._protocol.conn.max_message_size = self._line_bytes + 1
        while not self._received:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                raise anyio.EndOfStream
            data = message.get("bytes")
            line = data if data is not None else message["text"].encode()
            self._received = line if line.endswith(b"\n") else line + b"\n"
        taken, self._received = self._received[:max_bytes], self._received[max_bytes:]
        return taken

    async def send(self, item: bytes) -> None:
        """Send each whole line as a message. The beginning of a line waits for the rest."""
        *lines, self._unsent = (self._unsent + item).split(b"\n")
        try:
            for line in lines:
                await self._send({"type": "websocket.send", "text": line.decode(errors="replace")})
        except ClientDisconnected as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Do nothing: a WebSocket has no half that could be closed."""

    async def aclose(self) -> None:
        """Close the WebSocket."""
        try:
            await self._send({"type": "websocket.close", "code": CLOSED})
        except (ClientDisconnected, RuntimeError):
            # The client has closed it.
            return
