"""The two ports of the event source gateway, and who comes in first."""

import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import structlog
from anyio.abc import ByteStream, Listener, SocketAttribute, TaskGroup

from broker.gateways.source_lines import ID_BYTES_MAX, is_id
from broker.listening import serve_patiently
from broker.program import port_taken

__all__ = ["Doors"]

GREETING_S: Final = 30.0
SETTLE_S: Final = 2.0
SETTLE_POLL_S: Final = 0.005
SOURCES_WAITING_MAX: Final = 10

logger = structlog.stdlib.get_logger()

ServeSource = Callable[[ByteStream], Awaitable[None]]
ServeClient = Callable[[bytes, ByteStream], Awaitable[None]]


class Doors:
    """Lets sources in one at a time, the next when the one before has left, and clients once they have said their id."""

    def __init__(self, host: str, port: int, client_port: int, clients_max: int) -> None:
        self._host = host
        self._ports = (port, client_port)
        self._clients_max = clients_max
        self._turn = anyio.Lock()
        self._clients = 0
        self._greeting = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen until the end of the block. Raises StartError where a port is taken."""
        port, client_port = self._ports
        async with (
            await self._listen(port, "--event-source-port") as self._sources,
            await self._listen(client_port, "--event-source-client-port") as self._client_door,
        ):
            yield

    @property
    def addresses(self) -> tuple[str, str]:
        """host:port of the sources and of the clients."""
        first, second = (door.extra(SocketAttribute.local_port) for door in (self._sources, self._client_door))
        return f"{self._host}:{first}", f"{self._host}:{second}"

    async def let_in_sources(self, serve: ServeSource, connections: TaskGroup) -> None:
        """Have sources served, for ever."""

        async def handle(stream: ByteStream) -> None:
            async with stream:
                if self._turn.statistics().tasks_waiting >= SOURCES_WAITING_MAX:
                    logger.warning("too many event sources wait; one is turned away")
                    return
                stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                async with self._turn:
                    await self._settle()
                    await _guarded(serve, stream)

        await serve_patiently(self._sources, handle, connections)

    async def let_in_clients(self, serve: ServeClient, connections: TaskGroup) -> None:
        """Have clients served, for ever."""

        async def handle(stream: ByteStream) -> None:
            async with stream:
                if self._clients >= self._clients_max:
                    logger.warning("too many clients of the event source; one is turned away", limit=self._clients_max)
                    return
                self._clients += 1
                try:
                    await _guarded(lambda stream: self._greet(stream, serve), stream)
                finally:
                    self._clients -= 1

        await serve_patiently(self._client_door, handle, connections)

    async def _greet(self, stream: ByteStream, serve: ServeClient) -> None:
        self._greeting += 1
        try:
            id_ = await _first_line(stream)
            if id_ is None or not is_id(id_):
                logger.warning("closed a client of the event source that did not say its id", said=repr(id_))
                return
            serving = serve(id_, stream)
        finally:
            self._greeting -= 1
        await serving

    async def _settle(self) -> None:
        """Let those clients in first who came before the source, since they count on getting its first event."""
        with anyio.move_on_after(SETTLE_S):
            while self._greeting or _has_callers(self._client_door):
                await anyio.sleep(SETTLE_POLL_S)

    async def _listen(self, port: int, flag: str) -> Listener[Any]:
        try:
            return await anyio.create_tcp_listener(local_host=self._host, local_port=port)
        except OSError as error:
            raise port_taken(error, self._host, port, flag) from error


async def _guarded(serve: ServeSource, stream: ByteStream) -> None:
    """Serve; what goes wrong ends this connection alone, since it would end the listener, too."""
    try:
        await serve(stream)
    except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass
    except* Exception:
        logger.exception("a bug ended a connection of the event source gateway")


async def _first_line(stream: ByteStream) -> bytes | None:
    """Return the first line, None where there is none in time. What stands behind it is of no meaning."""
    data = b""
    with anyio.move_on_after(GREETING_S):
        while b"\n" not in data and len(data) <= ID_BYTES_MAX + 2:
            data += await stream.receive(ID_BYTES_MAX + 2)
        return data.partition(b"\n")[0].rstrip(b"\r")
    return None


def _has_callers(door: Listener[Any]) -> bool:
    """Whether connections wait to be accepted."""
    poll = select.poll()
    poll.register(door.extra(SocketAttribute.raw_socket), select.POLLIN)
    return bool(poll.poll(0))
