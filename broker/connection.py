"""One client's connection: a task that reads, a task that writes once the first line has arrived, and an outer guard.

The reader takes the bytes that have arrived (up to 256 KiB, or 4 KiB before a login). It parses them slice by slice, and the
core executes the commands immediately. The writer sends the contents of the session's outbox. Always true:

- at most one task reads and one writes;
- the connection is not read while more than `AWAITED_MAX` events or `AWAITED_BYTES_MAX` bytes wait to be confirmed;
- a peer that does not read for as long as its limit allows is disconnected, and its events in flight are redelivered.
"""

import time
from enum import Enum
from typing import Final

import anyio
import structlog
from anyio.abc import ByteStream, TaskGroup

from broker.core import Session
from broker.executor import Executor, Limits
from broker.login import ConnectionLogin
from broker.strangers_log import strangers_log
from broker.work_runner import WorkRunner
from tweetwire.protocol import GREETING_LIMIT, LineSplitter, is_foreign_protocol
from tweetwire.protocol.telnet import IAC, Telnet

__all__ = ["Connection", "End", "Limits"]

SEND_BYTES: Final = 256 << 10
AWAITED_MAX: Final = 100_000
AWAITED_BYTES_MAX: Final = 32 << 20
GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
"""The exceptions that a stream raises when its peer has disconnected."""

logger = structlog.stdlib.get_logger()


class End(Enum):
    """The reason why a connection ended."""

    LEFT = "left"
    LOST = "lost"
    FOREIGN = "foreign protocol"
    SHUTDOWN = "shutdown"
    STALLED = "did not read"
    TOO_MANY = "too many connections"
    SILENT = "did not log in, or sent no command, in time"
    REMOVED = "its user was removed"
    CROWDED_OUT = "made room for others before it had logged in"
    BUG = "bug"


class Connection(Executor):
    """Owns one stream, and the session of its client."""

    __slots__ = (
        *("_has_drained", "_has_output", "_is_over", "_login", "_received", "_scope", "_sending_since", "_splitter"),
        *("_stream", "_telnet", "end"),
    )

    def __init__(
        self, runner: WorkRunner, stream: ByteStream, session: Session, limits: Limits, login: ConnectionLogin
    ) -> None:
        super().__init__(runner, session, limits)
        self.end: End | None = None
        self._login = login
        self._stream = stream
        self._splitter = LineSplitter(limits.line_bytes)
        self._has_output = anyio.Event()
        self._has_drained: anyio.Event | None = None
        self._is_over = False
        self._received = b""
        # Created on the first telnet sequence, since most clients never send one.
        self._telnet: Telnet | None = None
        self._sending_since: float | None = None
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> End:
        """Serve until either side ends the connection. Never raises, since an exception would also end the listener."""
        try:
            with anyio.CancelScope() as self._scope:
                self._received = await self._meet()
            if self.end is None and not self._is_foreign():
                # Open the task group outside the first scope, so that thousands of waiting connections do not keep that scope
                # in memory.
                async with anyio.create_task_group() as tasks:
                    self._scope = tasks.cancel_scope
                    tasks.start_soon(self._write)
                    await self._read()
                    self._end_writing(tasks)
        except* GONE:
            self.end = self.end or End.LOST
        except* Exception:
            logger.exception("a bug ended a connection", client=self.session.name, peer=self.session.peer)
            self.end = End.BUG
        return self.end or End.LOST

    def wake(self) -> None:
        """Wake the writer, since the session has output."""
        self._has_output.set()

    def is_owed(self) -> bool:
        """Return whether output for the peer is waiting or being sent."""
        outbox = self.session.outbox
        return outbox.is_waiting or outbox.size > 0 or self._sending_since is not None

    def is_stalled(self, now_s: float) -> bool:
        """Return whether the peer has not read for longer than the limit. `now_s` is the time of the monotonic clock."""
        return self._sending_since is not None and now_s - self._sending_since > self._limits.stalled_s

    def close(self, why: End) -> None:
        """End the connection from another task, with `why` as the reason."""
        self.end = why
        if self._scope is not None:
            self._scope.cancel()

    async def _meet(self) -> bytes:
        """Greet the client, and return its first bytes, which are enough to recognise the protocol.

        There is no writer task yet, since thousands of connections may stay in this state and end at the same time.
        """
        data = b""
        while True:
            if output := self.session.take_output():
                await self._send(output)
            if len(data) >= GREETING_LIMIT or b"\n" in data:
                return data
            data += self._plain(await self._stream.receive(self._login.read_bytes))

    async def _read(self) -> None:
        """Execute the commands in `received` and those that arrive later, until one side ends the connection."""
        session = self.session
        try:
            while True:
                await self._execute(self._take_received())
                if session.is_leaving:
                    break
                while self._has_much_waiting():
                    await self._drained()
                self._received = self._plain(await self._stream.receive(self._login.read_bytes))
            self.end = End.LEFT
            # Also wait for the output that is being sent, since the writer is cancelled afterwards.
            while self.is_owed():
                await self._drained()
        except GONE:
            self.end = self.end or End.LOST

    def _take_received(self) -> bytes:
        """Return the bytes received last, and drop the reference: an idle connection must not keep them in memory."""
        received, self._received = self._received, b""
        return received

    def _end_writing(self, tasks: TaskGroup) -> None:
        """End the writer. Cancel it only while it sends, since cancelling costs more and leaves a reference cycle."""
        self._is_over = True
        self.wake()
        if self._sending_since is not None:
            tasks.cancel_scope.cancel()

    def _plain(self, data: bytes) -> bytes:
        """Return the received bytes without their telnet sequences, and answer these sequences."""
        if self._telnet is None:
            if IAC not in data:
                return data
            self._telnet = Telnet()
        data = self._telnet.feed(data)
        if answers := self._telnet.take_answers():
            self.session.outbox.notice(answers)
            self.wake()
        return data

    def _has_much_waiting(self) -> bool:
        """Return whether the bytes to send or the events to confirm exceed a limit, so that reading must wait."""
        outbox = self.session.outbox
        return (
            outbox.load > self._limits.waiting_bytes
            or outbox.awaited > AWAITED_MAX
            or outbox.awaited_bytes > AWAITED_BYTES_MAX
        )

    async def _drained(self) -> None:
        """Wait until the writer has sent output and no limit is exceeded."""
        self._has_drained = anyio.Event()
        await self._has_drained.wait()

    def _is_foreign(self) -> bool:
        if not is_foreign_protocol(self._received[:GREETING_LIMIT]):
            return False
        strangers_log.warning("closed a connection that speaks another protocol", peer=self.session.peer)
        self.end = End.FOREIGN
        return True

    async def _execute(self, data: bytes) -> None:
        await self._execute_lines(self._splitter.feed(data), len(data), self._login)
        if not self._login.is_known:
            self._login.check_beginning(self._splitter.held_bytes, self._runner.now_ms())
            self._runner.do_work()

    async def _write(self) -> None:
        session = self.session
        while not self._is_over:
            data = session.take_output()
            if self._has_drained is not None and not self._has_much_waiting():
                self._has_drained.set()
            if not data:
                self._has_output = anyio.Event()
                await self._has_output.wait()
                continue
            await self._send(data)
            self._runner.broker.sent(session, self._runner.now_ms())
            self._runner.do_work()

    async def _send(self, data: bytes) -> None:
        """Send in pieces, so that a peer that reads slowly does not look like a peer that has stopped reading."""
        for start in range(0, len(data), SEND_BYTES):
            self._sending_since = time.monotonic()
            await self._stream.send(data[start : start + SEND_BYTES])
        self._sending_since = None
