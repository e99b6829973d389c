"""The two ports of the event source gateway, and the order in which connections are served."""

import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import structlog
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream, TaskGroup

from broker.gateways.event_source.callers import Caller, Callers
from broker.gateways.event_source.lines import ID_BYTES_MAX, is_id
from broker.strangers_log import strangers_log
from tweetwire.protocol import is_foreign_protocol
from tweetwire.protocol.errors import Refusal
from tweetwire.runtime.admission import Admission, AdmissionLimits
from tweetwire.runtime.listening import accept_forever, listen, peer_of

__all__ = ["Doors"]

GREETING_S: Final = 10.0
SETTLE_S: Final = 2.0
SETTLE_POLL_S: Final = 0.005

logger = structlog.stdlib.get_logger()

ServeSource = Callable[[Caller], Awaitable[None]]
ServeClient = Callable[[bytes, ByteStream], Awaitable[None]]


class Doors:
    """Accepts sources and clients. One source is served at a time; a client is served once it has sent its id.

    A source that is silent for `silence_s` seconds is disconnected if another one waits. `clients_max` and
    `clients_per_address` limit the clients; see `Admission`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_port: int,
        *,
        silence_s: float,
        clients_max: int,
        clients_per_address: int | None = None,
    ) -> None:
        self._host = host
        self._ports = (port, client_port)
        self._callers = Callers(silence_s)
        self._admission = Admission(AdmissionLimits(clients_max, GREETING_S, clients_per_address))
        self._greeting = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen until the end of the block. Raises StartError if a port is in use."""
        port, client_port = self._ports
        async with (
            await listen(self._host, port, "--event-source-port") as self._sources,
            await listen(self._host, client_port, "--event-source-client-port") as self._client_door,
        ):
            yield

    @property
    def addresses(self) -> tuple[str, str]:
        """The addresses, host:port, for sources and for clients."""
        first, second = (door.extra(SocketAttribute.local_port) for door in (self._sources, self._client_door))
        return f"{self._host}:{first}", f"{self._host}:{second}"

    async def let_in_sources(self, serve: ServeSource, connections: TaskGroup) -> None:
        """Accept sources forever, and serve them one at a time."""

        async def handle(stream: SocketStream) -> None:
            peer = peer_of(stream)
            stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            caller = self._callers.enter(stream)
            if caller is None:
                strangers_log.warning("too many event sources wait; closed one", peer=peer.name)
                return
            try:
                with caller.scope:
                    await self._have_turn(caller, serve)
            finally:
                self._callers.leave(caller)

        await accept_forever(self._sources, handle, connections)

    async def _have_turn(self, caller: Caller, serve: ServeSource) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.listen)
            await caller.has_turn.wait()
            await caller.spoken()
            await self._settle()
            await serve(caller)

    async def let_in_clients(self, serve: ServeClient, connections: TaskGroup) -> None:
        """Accept clients forever, and serve each in a task."""

        async def handle(stream: SocketStream) -> None:
            peer, scope = peer_of(stream), anyio.CancelScope()
            try:
                place = self._admission.admit(peer.host, anyio.current_time(), lambda _: scope.cancel())
            except Refusal as refusal:
                strangers_log.warning("too many clients of the event source; closed one", reason=refusal.text)
                return
            # Stays None if the scope is cancelled because the client has to make room for others.
            id_: bytes | None = None
            try:
                with scope:
                    id_ = await self._greet(stream)
                    place.keep()
                if id_ is not None:
                    await serve(id_, stream)
            finally:
                place.leave()

        await accept_forever(self._client_door, handle, connections)

    async def _greet(self, stream: SocketStream) -> bytes | None:
        """Return the id that a client sends, None if it sends no valid id."""
        self._greeting += 1
        try:
            said = await _first_line(stream)
        finally:
            self._greeting -= 1
        if said is not None and is_id(said):
            return said
        if said is not None and is_foreign_protocol(said):
            strangers_log.warning("closed a client of the event source that speaks another protocol")
        else:
            strangers_log.warning("closed a client of the event source that sent no valid id", said=repr(said))
        return None

    async def _settle(self) -> None:
        """Wait for the clients that connected before the source, since they expect to receive its first event."""
        with anyio.move_on_after(SETTLE_S):
            while self._greeting or _has_callers(self._client_door):
                await anyio.sleep(SETTLE_POLL_S)


async def _first_line(stream: SocketStream) -> bytes | None:
    """Return the first line, None if none arrives in time. The bytes after it are dropped."""
    data = b""
    with anyio.move_on_after(GREETING_S):
        while b"\n" not in data and len(data) <= ID_BYTES_MAX + 2:
            data += await stream.receive(ID_BYTES_MAX + 2)
        return data.partition(b"\n")[0].rstrip(b"\r")
    return None


def _has_callers(door: Listener[Any]) -> bool:
    """Return whether connections wait to be accepted."""
    poll = select.poll()
    poll.register(door.extra(SocketAttribute.raw_socket), select.POLLIN)
    return bool(poll.poll(0))
