"""The async client's connection: it owns the socket and the clock, and leaves decisions about commands to the engine.

One task connects and reads. A second task writes the data that the engine has queued. A third task checks that the broker
is still alive.
"""

import ssl
from collections.abc import Sequence
from time import monotonic
from typing import Final, TypeVar

import anyio
from anyio.abc import ByteStream

from tweetwire.client.aio.opening import Opened, open_connection
from tweetwire.client.aio.owner import LoopOwner
from tweetwire.client.engine import ClientEngine, PublishWindow
from tweetwire.client.engine.commands import Command, ConnectionCommand, OnceCommand
from tweetwire.client.engine.pauses import ReconnectPauses
from tweetwire.client.engine.unanswered import Dismissed
from tweetwire.client.logging import OutageLog, client_logger
from tweetwire.protocol.errors import BrokerError, BrokerUnreachable, ProtocolError, Refusal

__all__ = ["AsyncLink"]

READ_BYTES: Final = 256 << 10
QUEUE_BYTES: Final = 4 << 20
FIRST_PAUSE_S: Final = 0.2
"""The pause between attempts to make the first connection."""

logger = client_logger(__name__)

C = TypeVar("C", bound=Command)
E = TypeVar("E", bound=Exception)


class AsyncLink:
    """Carries bytes between `engine` and the broker at `address`, and reconnects by itself.

    If there are subscriptions or requests, nothing was received for `timeout_s` seconds, and no command waits for its
    answer, the link sends a ``ping``. If nothing is received for `timeout_s` seconds more, the connection counts as lost. While
    another command waits for its reply, no ping is sent: its answer would come only after that reply, which a slow disk may
    delay.
    """

    def __init__(
        self, address: str, name: str, engine: ClientEngine, *, tls: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        self.address = address
        self.engine = engine
        self.owner = LoopOwner(f"client {name!r}", address)
        self._name = name
        self._tls = tls
        self.timeout_s = timeout_s
        self._heard_at = 0.0
        self._pauses = ReconnectPauses()
        self._has_output = anyio.Event()
        self._is_writer_idle = False
        self._has_room = anyio.Event()
        self._is_leaving = False
        self._has_left = anyio.Event()
        # Set once the data queued now has been sent; None while no task waits for that.
        self._has_sent: anyio.Event | None = None

    def send(self, command: C) -> C:
        """Send a command. If the connection is lost before its reply, it is sent again on the next one.

        This method and the others raise RuntimeError if the client is used where it must not be; see `LoopOwner`.
        """
        self.owner.check()
        self.engine.send(command)
        self._wake_writer()
        return command

    def post(self, command: Command) -> None:
        """Send a command that is useful only on this connection. Without a connection it is dropped."""
        self.owner.check_thread()
        self.tell(command)

    def tell(self, command: Command) -> None:
        """Post a command without checking the owner, for the client's own tasks."""
        self.engine.post(command)
        self._wake_writer()

    def send_publishes(self, window: PublishWindow, lines: Sequence[bytes]) -> None:
        """Send whole ``pub`` lines, one after the other."""
        self.owner.check_thread()
        self.engine.send_publishes(window, lines)
        if self._is_writer_idle:
            self._wake_writer()

    async def wait(self, command: Command) -> None:
        """Wait until a sent command is done."""
        if not command.is_done:
            has_ended = anyio.Event()
            command.when_done(has_ended.set)
            await has_ended.wait()

    async def outcome(self, command: Command) -> bytes:
        """Return the reply to a sent command. Raises Refusal, or the BrokerError that prevents a reply."""
        await self.wait(command)
        return command.outcome()

    async def ask(self, line: bytes) -> bytes:
        """Send a line as `send` does, and return its reply. Raises the errors of `outcome`."""
        return await self.outcome(self.send(Command(line)))

    async def ask_once(self, line: bytes) -> bytes:
        """Send a line and return its reply, as `ask` does.

        Raises BrokerLost if the connection is lost before the reply: the line is not sent again.
        """
        return await self.outcome(self.send(OnceCommand(line, self.address)))

    async def wait_for_room(self) -> None:
        """Wait while more than `QUEUE_BYTES` bytes are queued for the socket."""
        while self.engine.queued_bytes > QUEUE_BYTES:
            # Several tasks may wait for this anyio.Event, so it is replaced only after it was set.
            if self._has_room.is_set():
                self._has_room = anyio.Event()
            await self._has_room.wait()

    async def wait_until_sent(self) -> None:
        """Wait until the data queued now has been handed to the operating system, or the connection is lost."""
        if self.engine.has_output:
            if self._has_sent is None:
                self._has_sent = anyio.Event()
            await self._has_sent.wait()

    async def connect(self, within_s: float) -> Opened:
        """Make the first connection.

        Raises BrokerUnreachable if no broker greets within `within_s` seconds. Raises TlsFailed without a second try.
        """
        reason: BrokerUnreachable | None = None
        with anyio.move_on_after(within_s):
            while True:
                try:
                    return await open_connection(self.address, self._tls)
                except BrokerUnreachable as error:
                    reason = error
                except Refusal as refusal:
                    reason = BrokerUnreachable(self.address, str(refusal))
                await anyio.sleep(FIRST_PAUSE_S)
        raise reason or BrokerUnreachable(self.address, "timeout")

    async def leave(self, deadline: float) -> None:
        """Send ``quit`` after the queued data, if there is a connection, and wait for the answer up to `deadline`."""
        if not self.engine.is_connected:
            return
        self._is_leaving = True
        quit_ = ConnectionCommand(b"quit\n")
        quit_.when_done(self._has_left.set)
        self.tell(quit_)
        with anyio.move_on_at(deadline):
            await self._has_left.wait()
        if not self._has_left.is_set():
            logger.warning(
                "left before the broker answered everything",
                client=self._name,
                unanswered=self.engine.unanswered - 1,
            )

    async def serve(self, opened: Opened) -> None:
        """Serve the connection and each later one. Returns only after `leave`."""
        while True:
            began_at = monotonic()
            try:
                async with opened.stream, anyio.create_task_group() as tasks:
                    self.engine.begin_connection()
                    tasks.start_soon(self._write, opened.stream)
                    tasks.start_soon(self._stay_alive)
                    await self._read(opened)
            except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass
            except* Dismissed as group:
                logger.warning("the broker ends the connection", client=self._name, reason=str(_first(group)))
            except* ProtocolError as group:
                self._fail(_first(group))
            self.engine.end_connection()
            if self._has_sent is not None:
                self._has_sent.set()
                self._has_sent = None
            if self._is_leaving:
                self._has_left.set()
                return
            logger.warning("lost the broker", address=self.address, client=self._name)
            self._pauses.note_lost(monotonic() - began_at)
            opened = await self._reconnect()

    async def _reconnect(self) -> Opened:
        log = OutageLog(logger, self._name)
        while True:
            await anyio.sleep(self._pauses.next_s())
            try:
                with anyio.fail_after(self.timeout_s):
                    return await open_connection(self.address, self._tls)
            except (BrokerError, TimeoutError) as error:
                log.note_failed(error)

    def _wake_writer(self) -> None:
        self._is_writer_idle = False
        self._has_output.set()

    async def _write(self, stream: ByteStream) -> None:
        while True:
            if not self.engine.has_output:
                self._has_room.set()
                self._has_output = anyio.Event()
                self._is_writer_idle = True
                await self._has_output.wait()
                continue
            data = self.engine.take_output()
            self._has_room.set()
            has_sent, self._has_sent = self._has_sent, None
            try:
                await stream.send(data)
            finally:
                if has_sent is not None:
                    has_sent.set()

    async def _read(self, opened: Opened) -> None:
        stream, data = opened
        while True:
            for trouble in self.engine.receive(data):
                logger.error(trouble.event, **trouble.fields)
            data = await stream.receive(READ_BYTES)
            self._heard_at = monotonic()

    def _fail(self, error: ProtocolError) -> None:
        """End all commands and subscriptions, because the server does not follow the protocol."""
        logger.error(
            "closed the connection, the server is not a broker",
            address=self.address,
            client=self._name,
            reason=str(error),
        )
        self.engine.fail(error)

    async def _stay_alive(self) -> None:
        """Check that a silent broker is alive while only events are awaited. Raises TimeoutError if it is not."""
        quiet_since = self._heard_at = monotonic()
        while True:
            quiet_since = max(quiet_since, self._heard_at)
            left_s = quiet_since + self.timeout_s - monotonic()
            if left_s > 0:
                await anyio.sleep(left_s)
            elif (self.engine.subscriptions or self.engine.requests) and not self.engine.is_waiting:
                await self._ping()
            else:
                quiet_since = monotonic()

    async def _ping(self) -> None:
        heard_at = self._heard_at
        self.tell(ConnectionCommand(b"ping\n"))
        # Wait in two halves. If this process was suspended during the first, the second leaves time to read the answer.
        for _ in range(2):
            await anyio.sleep(self.timeout_s / 2)
        if self._heard_at == heard_at:
            raise TimeoutError


def _first(group: BaseExceptionGroup[E]) -> E:
    error: E | BaseExceptionGroup[E] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
