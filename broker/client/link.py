"""The connection that comes back by itself.

One task owns it: it connects, says again what must be said on a new connection, and then reads; a second one writes what has
been queued, and a third one sees that the broker is still there. Without a connection there is no queue: what is
`Unanswered` is sent whole on the next one.
"""

import ssl
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, NamedTuple, TypeVar

import anyio
import structlog
from anyio.abc import ByteStream, SocketAttribute

from broker.client.commands import Command, PingCommand
from broker.client.publisher import Publisher
from broker.client.unanswered import Unanswered
from broker.errors import BrokerError, BrokerUnreachable, Refusal, TlsFailed
from broker.events import StoredEvent
from broker.greeting import GREETING_MAX, first_bytes, open_stream, see_greeting, unreachable, watch_peer

__all__ = ["Link", "Opened"]

READ_BYTES: Final = 256 << 10
QUEUE_BYTES: Final = 4 << 20
PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
SETTLED_S: Final = 5.0
"""A connection that is lost sooner is one more failure to get one that stays."""

logger = structlog.stdlib.get_logger()

C = TypeVar("C", bound=Command)


class Opened(NamedTuple):
    """A connection that a broker has greeted, and what came on it by then."""

    stream: ByteStream
    data: bytes


class Link:
    """What carries commands to the broker at `address`, and what comes from there back.

    `first_commands` returns what is said first on a new connection, before all that had no reply; `deliver` is given the
    events as they come, and `is_listening` says whether somebody waits for some. While they alone are waited for and nothing
    has come for `timeout_s` seconds, a ``ping`` goes out; where nothing comes for so long again, the connection is lost. No
    ping goes out behind a command without a reply: it would wait as that one does, for a slow disk, say.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        first_commands: Callable[[], list[Command]],
        deliver: Callable[[list[StoredEvent]], None],
        is_listening: Callable[[], bool],
    ) -> None:
        self.address = address
        self.connects = 0
        self.is_connected = False
        self._name = name
        self._tls = tls
        self._first_commands = first_commands
        self._deliver = deliver
        self._is_listening = is_listening
        self._timeout_s = timeout_s
        self._heard_at = 0.0
        self._attempts = 0
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

    async def connect(self, within_s: float) -> Opened:
        """Make the first connection.

        Raises BrokerUnreachable if no broker greets within `within_s` seconds, TlsFailed at once.
        """
        reason: BrokerUnreachable | None = None
        with anyio.move_on_after(within_s):
            while True:
                try:
                    return await self._connect()
                except BrokerUnreachable as error:
                    reason = error
                except Refusal as refusal:
                    reason = BrokerUnreachable(self.address, str(refusal))
                await anyio.sleep(PAUSES_S[2])
        raise reason or BrokerUnreachable(self.address, "timeout")

    async def serve(self, opened: Opened) -> None:
        """Serve the connection, and each one after it; never returns."""
        while True:
            began_at = monotonic()
            try:
                async with opened.stream, anyio.create_task_group() as tasks:
                    self._greet()
                    tasks.start_soon(self._write, opened.stream)
                    tasks.start_soon(self._stay_alive)
                    await self._read(opened)
            except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass
            self.is_connected = False
            logger.warning("lost the broker", address=self.address, client=self._name)
            if monotonic() - began_at > SETTLED_S:
                self._attempts = 0
            opened = await self._reconnect()

    async def _connect(self) -> Opened:
        """Connect, and wait to be greeted. Raises BrokerUnreachable, TlsFailed, and Refusal of a broker that has no room."""
        try:
            stream = await open_stream(self.address, self._tls)
            watch_peer(stream.extra(SocketAttribute.raw_socket))
            return await self._greeted(stream)
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise unreachable(self.address, error, self._tls) from error

    async def _greeted(self, stream: ByteStream) -> Opened:
        data = b""
        try:
            if first := first_bytes(self._tls):
                await stream.send(first)
            while b"\n" not in data and len(data) < GREETING_MAX:
                data += await stream.receive(GREETING_MAX)
            see_greeting(self.address, data.partition(b"\n")[0], self._tls)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        return Opened(stream, data)

    async def _reconnect(self) -> Opened:
        told = ""
        while True:
            await anyio.sleep(PAUSES_S[min(self._attempts, len(PAUSES_S) - 1)])
            self._attempts += 1
            try:
                with anyio.fail_after(self._timeout_s):
                    return await self._connect()
            except (BrokerError, TimeoutError) as error:
                # It may take hours until it is mended; each reason once, or who runs this could not tell one from another.
                if (reason := str(error) or "timeout") != told:
                    told = reason
                    # Of these, who runs the broker can mend the first alone, while the others may pass.
                    tell = logger.error if isinstance(error, TlsFailed) else logger.warning
                    tell("cannot reach the broker", client=self._name, reason=reason)

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

    async def _read(self, opened: Opened) -> None:
        stream, data = opened
        while True:
            *lines, rest = data.split(b"\n")
            if events := self._unanswered.take(lines):
                self._deliver(events)
            data = rest + await stream.receive(READ_BYTES)
            self._heard_at = monotonic()

    async def _stay_alive(self) -> None:
        """See that who is listened to is there. Raises TimeoutError where it is not."""
        quiet_since = self._heard_at = monotonic()
        while True:
            quiet_since = max(quiet_since, self._heard_at)
            left_s = quiet_since + self._timeout_s - monotonic()
            if left_s > 0:
                await anyio.sleep(left_s)
            elif self._is_listening() and not self._unanswered.is_waiting:
                await self._ping()
            else:
                quiet_since = monotonic()

    async def _ping(self) -> None:
        heard_at = self._heard_at
        self.send(PingCommand())
        # In two halves: in a process that was held up for the whole time, the answer may be there and not yet read.
        for _ in range(2):
            await anyio.sleep(self._timeout_s / 2)
        if self._heard_at == heard_at:
            raise TimeoutError
