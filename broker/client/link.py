"""The connection that comes back by itself.

One task owns it: it connects, says again what must be said on a new connection, and then reads; a second one writes what has
been queued. Without a connection there is no queue: what is `Unanswered` is sent whole on the next one.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import anyio
import structlog
from anyio.abc import ByteStream

from broker.addresses import split_address
from broker.client.commands import Command
from broker.client.publisher import Publisher
from broker.client.unanswered import Unanswered
from broker.errors import BrokerUnreachable
from broker.events import StoredEvent

__all__ = ["Link"]

READ_BYTES: Final = 256 << 10
QUEUE_BYTES: Final = 4 << 20
PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

logger = structlog.stdlib.get_logger()

C = TypeVar("C", bound=Command)


class Link:
    """What carries commands to the broker at `address`, and what comes from there back.

    `first_commands` returns what is said first on a new connection, before all that had no reply; `deliver` is given the
    events as they come.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        tls: ssl.SSLContext | None,
        first_commands: Callable[[], list[Command]],
        deliver: Callable[[list[StoredEvent]], None],
    ) -> None:
        self.address = address
        self.connects = 0
        self.is_connected = False
        self._name = name
        self._tls = tls
        self._first_commands = first_commands
        self._deliver = deliver
        self._unanswered = Unanswered()
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        self._has_queued = anyio.Event()
        self._has_room = anyio.Event()

    def send(self, command: C) -> C:
        """Send a command, again on a new connection where one is lost before its reply."""
        self._unanswered.add(command)
        self._enqueue(command.line)
        return command

    def send_publishes(self, publisher: Publisher, lines: Sequence[bytes]) -> None:
        """Send whole ``pub`` lines behind each other."""
        self._unanswered.add_publishes(publisher, lines)
        self._enqueue(b"".join(lines))

    async def ask(self, line: bytes) -> bytes:
        """Send a line, again on a new connection where one is lost, and return its reply. Raises Refusal."""
        return await self.send(Command(line)).wait()

    async def wait_for_room(self) -> None:
        """Wait while too much is queued for the socket."""
        while self._queued_bytes > QUEUE_BYTES:
            self._has_room = anyio.Event()
            await self._has_room.wait()

    async def connect(self, within_s: float) -> ByteStream:
        """Make the first connection. Raises BrokerUnreachable if nobody answers within `within_s` seconds."""
        reason = "timeout"
        with anyio.move_on_after(within_s):
            while True:
                try:
                    return await self._connect()
                except OSError as error:
                    reason = _reason(error)
                    await anyio.sleep(PAUSES_S[2])
        raise BrokerUnreachable(self.address, reason)

    async def serve(self, stream: ByteStream) -> None:
        """Serve the connection, and each one after it; never returns."""
        while True:
            try:
                async with stream, anyio.create_task_group() as tasks:
                    self._greet()
                    tasks.start_soon(self._write, stream)
                    await self._read(stream)
            except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass
            self.is_connected = False
            logger.warning("lost the broker", address=self.address, client=self._name)
            stream = await self._reconnect()

    async def _connect(self) -> ByteStream:
        host, port = split_address(self.address)
        if self._tls is None:
            return await anyio.connect_tcp(host, port)
        return await anyio.connect_tcp(host, port, ssl_context=self._tls, tls_standard_compatible=False)

    async def _reconnect(self) -> ByteStream:
        attempt = 0
        while True:
            await anyio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
            attempt += 1
            try:
                return await self._connect()
            except OSError:
                continue

    def _greet(self) -> None:
        lines = self._unanswered.begin_again(self._first_commands())
        self.is_connected = True
        self.connects += 1
        self._queue, self._queued_bytes = [], 0
        for line in lines:
            self._enqueue(line)

    def _enqueue(self, data: bytes) -> None:
        if self.is_connected:
            self._queue.append(data)
            self._queued_bytes += len(data)
            self._has_queued.set()

    async def _write(self, stream: ByteStream) -> None:
        while True:
            if not self._queue:
                self._has_room.set()
                self._has_queued = anyio.Event()
                await self._has_queued.wait()
            data = b"".join(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            self._has_room.set()
            await stream.send(data)

    async def _read(self, stream: ByteStream) -> None:
        rest = b""
        while True:
            data = await stream.receive(READ_BYTES)
            *lines, rest = (rest + data).split(b"\n")
            if events := self._unanswered.take(lines):
                self._deliver(events)


def _reason(error: BaseException) -> str:
    """Why a connection was not made: anyio has the system's word behind its own, one for each address that it tried."""
    while isinstance(error, BaseExceptionGroup) or error.__cause__ is not None:
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__
