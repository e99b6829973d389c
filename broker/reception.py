"""The reception of a connection, before its session begins: it is admitted within the limits and made secure."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketStream

from broker.connection import Connection, End
from broker.lost_peers import watch_client
from broker.strangers_log import strangers_log
from tweetwire.protocol.errors import Refusal
from tweetwire.runtime.admission import Admission, AdmissionLimits, AdmissionPlace, Closing
from tweetwire.runtime.listening import Peer, peer_of

__all__ = ["Reception", "Secure", "Visit", "say"]

LAST_LINE_S: Final = 1.0
_ENDS: Final = {Closing.SILENT: End.SILENT, Closing.CROWDED_OUT: End.CROWDED_OUT}

Secure = Callable[[SocketStream], Awaitable[ByteStream | None]]
"""Makes a connection secure. Returns None if that fails."""


class Visit:
    """An accepted connection. While it is made secure, `scope` can cancel it; after that, `connection` can close it."""

    __slots__ = ("connection", "end", "peer", "place", "scope")

    place: AdmissionPlace

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.scope: anyio.CancelScope | None = None
        self.connection: Connection | None = None
        self.end: End | None = None

    def close(self, why: Closing) -> None:
        """End the connection at any point of its life."""
        self.end = _ENDS[why]
        if self.connection is not None:
            self.connection.close(self.end)
        elif self.scope is not None:
            self.scope.cancel()


class Reception:
    """Admits connections. Counts in `ends` those that end before they are served.

    A client may stop reading for `stalled_s` seconds.
    """

    def __init__(self, limits: AdmissionLimits, secure: Secure | None, ends: dict[End, int], stalled_s: float) -> None:
        self.patience_s = limits.patience_s
        self._admission = Admission(limits)
        self._secure = secure
        self._ends = ends
        self._stalled_s = stalled_s

    async def let_in(self, stream: SocketStream, serve: Callable[[ByteStream, Visit], Awaitable[None]]) -> None:
        """Serve a connection if the limits allow it, else refuse it. Raises the errors of a broken stream."""
        visit = Visit(peer_of(stream))
        try:
            visit.place = self._admission.admit(visit.peer.host, time.monotonic(), visit.close)
        except Refusal as refusal:
            strangers_log.warning("a connection was refused", peer=visit.peer.name, reason=refusal.text)
            self._ends[End.TOO_MANY] += 1
            # A client that expects TLS cannot read a line before the handshake.
            if self._secure is None:
                await say(stream, f"-ERR {refusal}")
            return
        try:
            watch_client(stream, self._stalled_s)
            secured: ByteStream | None = stream
            if self._secure is not None:
                secured = await self._made_secure(stream, self._secure, visit)
            if secured is not None:
                await serve(secured, visit)
        finally:
            visit.place.leave()

    async def _made_secure(self, stream: SocketStream, secure: Secure, visit: Visit) -> ByteStream | None:
        secured = None
        with anyio.CancelScope() as visit.scope:
            secured = await secure(stream)
        visit.scope = None
        if visit.end is not None:
            self._ends[visit.end] += 1
            return None
        return secured

    def close_silent(self) -> None:
        """Close the connections that were silent for too long. Call it a few times a second."""
        self._admission.close_silent(time.monotonic())


async def say(stream: ByteStream, line: str) -> None:
    """Send a last line to a peer that may be gone or may not read."""
    with anyio.move_on_after(LAST_LINE_S), suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stream.send(f"{line}\n".encode())
