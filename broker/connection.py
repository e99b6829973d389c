"""One client's connection: a task that reads, a task that writes, and an outer guard.

The reader takes what has arrived (up to 256 KiB), turns it into commands and has the core carry them out at once; the
writer sends what the session's outbox holds. Always true: at most one task reads and one writes; while more bytes wait to
leave than its limit says, or `AWAITED_MAX` events to be confirmed, nothing more is read; a peer that takes nothing for as
long as its limit says is cut off, and what it had is given to others.
"""

import time
from enum import Enum
from typing import Final, NamedTuple, Protocol

import anyio
import structlog
from anyio import to_thread
from anyio.abc import ByteStream

from broker.core import Access, Broker, Session
from broker.errors import Refusal
from broker.protocol import GREETING_LIMIT, LineSplitter, is_foreign_protocol, parse_lines
from broker.protocol.commands import Hello

__all__ = ["Connection", "End", "Limits", "Users"]

READ_BYTES: Final = 256 << 10
SEND_BYTES: Final = 256 << 10
AWAITED_MAX: Final = 100_000
FAILED_HELLOS_MAX: Final = 3

logger = structlog.stdlib.get_logger()


class End(Enum):
    """Why a connection ended."""

    LEFT = "left"
    LOST = "lost"
    FOREIGN = "foreign protocol"
    SHUTDOWN = "shutdown"
    STALLED = "did not read"
    TOO_MANY = "too many connections"
    BUG = "bug"


class Limits(NamedTuple):
    """What one client may use: the longest line, what may wait to be sent to it, and how long it may take nothing."""

    line_bytes: int
    waiting_bytes: int
    stalled_s: float


class Users(Protocol):
    """Those who may connect."""

    def identify(self, name: str, token: str) -> Access | None:
        """Return what somebody may do, None where name and token do not fit; takes its time, so call it in a thread."""
        ...


class Host(Protocol):
    """The server that a connection belongs to."""

    broker: Broker
    users: Users | None

    def now_ms(self) -> int:
        """The broker's clock: milliseconds since 1970 UTC."""
        ...

    def carry_out(self) -> None:
        """Do what the core left to do."""
        ...


class Connection:
    """Owns one stream and its session."""

    __slots__ = (
        *("_failed_hellos", "_has_drained", "_has_output", "_host", "_is_greeted", "_limits", "_scope", "_splitter"),
        *("_sending_since", "_stream", "end", "session"),
    )

    def __init__(self, host: Host, stream: ByteStream, session: Session, limits: Limits) -> None:
        self.session = session
        self.end: End | None = None
        self._host = host
        self._stream = stream
        self._limits = limits
        self._splitter = LineSplitter(limits.line_bytes)
        self._has_output = anyio.Event()
        self._has_drained: anyio.Event | None = None
        self._is_greeted = False
        self._failed_hellos = 0
        self._sending_since: float | None = None
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> End:
        """Serve until either side ends it. Never raises, since that would end the listener too."""
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                tasks.start_soon(self._write)
                await self._read()
                tasks.cancel_scope.cancel()
        except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self.end = self.end or End.LOST
        except* Exception:
            logger.exception("a bug ended a connection", client=self.session.name, peer=self.session.peer)
            self.end = End.BUG
        return self.end or End.LOST

    def wake(self) -> None:
        """There is something to send."""
        self._has_output.set()

    def is_owed(self) -> bool:
        """Whether the peer is still to be sent something, or is being sent it."""
        outbox = self.session.outbox
        return outbox.is_waiting or outbox.size > 0 or self._sending_since is not None

    def is_stalled(self, now_s: float) -> bool:
        """Whether the peer has taken nothing for as long as the limit says (`now_s` by the monotonic clock)."""
        return self._sending_since is not None and now_s - self._sending_since > self._limits.stalled_s

    def close(self, why: End) -> None:
        """End the connection from outside."""
        self.end = why
        if self._scope is not None:
            self._scope.cancel()

    async def _read(self) -> None:
        session = self.session
        while not session.is_leaving:
            while session.outbox.size > self._limits.waiting_bytes or session.outbox.awaited > AWAITED_MAX:
                await self._drained()
            data = await self._stream.receive(READ_BYTES)
            if not self._is_greeted:
                data = await self._whole_greeting(data)
                if self._is_foreign(data):
                    return
            await self._execute(data)
        self.end = End.LEFT
        while session.outbox.is_waiting or session.outbox.size:
            await self._drained()

    async def _whole_greeting(self, data: bytes) -> bytes:
        """Wait for as much of the first line as tells which protocol it is."""
        while len(data) < GREETING_LIMIT and b"\n" not in data:
            data += await self._stream.receive(READ_BYTES)
        return data

    async def _drained(self) -> None:
        """Wait until the writer has sent what there was."""
        self._has_drained = anyio.Event()
        await self._has_drained.wait()

    def _is_foreign(self, data: bytes) -> bool:
        self._is_greeted = True
        if not is_foreign_protocol(data[:GREETING_LIMIT]):
            return False
        logger.warning("closed a connection that speaks another protocol", peer=self.session.peer)
        self.end = End.FOREIGN
        return True

    async def _execute(self, data: bytes) -> None:
        broker, session = self._host.broker, self.session
        now_ms = self._host.now_ms()
        for command in parse_lines(self._splitter.feed(data), self._splitter.max_bytes):
            if isinstance(command, Refusal):
                broker.refuse(session, command, now_ms)
            elif isinstance(command, Hello) and not await self._is_who_it_says(command):
                broker.refuse(session, Refusal("unauthenticated", "no such name and token"), now_ms)
            else:
                broker.execute(session, command, now_ms)
            if session.is_leaving:
                break
        self._host.carry_out()

    async def _is_who_it_says(self, hello: Hello) -> bool:
        """Check a name and token where there are users; the third failure in a row ends the connection."""
        users = self._host.users
        if users is None:
            return True
        access = await to_thread.run_sync(users.identify, hello.name, hello.token or "")
        if access is not None:
            self._failed_hellos, self.session.access = 0, access
            return True
        self._failed_hellos += 1
        logger.warning("refused a hello", name=hello.name, peer=self.session.peer, failed=self._failed_hellos)
        if self._failed_hellos >= FAILED_HELLOS_MAX:
            self.session.is_leaving = True
        return False

    async def _write(self) -> None:
        session = self.session
        while True:
            data = session.take_output()
            if not data:
                if self._has_drained is not None:
                    self._has_drained.set()
                self._has_output = anyio.Event()
                await self._has_output.wait()
                continue
            await self._send(data)
            self._host.broker.sent(session, self._host.now_ms())
            self._host.carry_out()

    async def _send(self, data: bytes) -> None:
        """Send in pieces, so that a peer which takes one now and then is not taken for one that has stopped."""
        for start in range(0, len(data), SEND_BYTES):
            self._sending_since = time.monotonic()
            await self._stream.send(data[start : start + SEND_BYTES])
        self._sending_since = None
