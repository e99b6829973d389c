"""The server: it connects the core to the data directory, the connections and the clock, and shuts them down in order."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import structlog
from anyio.abc import ByteStream, SocketStream
from anyio.lowlevel import checkpoint

from broker.clock import Clock
from broker.connection import Connection, End, Limits
from broker.core import EVERYTHING, NOTHING, Access, Broker, Session
from broker.data_directory import DataDirectory, Durability, Sizes
from broker.login import ConnectionLogin
from broker.logins import Logins, Users
from broker.reception import Reception, Secure, Visit, say
from broker.work_runner import WorkRunner
from tweetwire.runtime.admission import AdmissionLimits, AdmissionPlace
from tweetwire.runtime.listening import Peer
from tweetwire.version import VERSION

__all__ = ["Server"]

_SIZES: Final = Sizes()
_ADMISSION: Final = AdmissionLimits(connections=10_000, patience_s=60.0)
TICK_S: Final = 0.1
DRAIN_S: Final = 5.0

logger = structlog.stdlib.get_logger()


class Guest(NamedTuple):
    """A session without a socket, and the function that wakes it."""

    session: Session
    wake: Callable[[], None]


class Server:
    """Serves one data directory on one or more listeners."""

    def __init__(
        self,
        data_dir: Path,
        durability: Durability,
        *,
        limits: Limits,
        admission: AdmissionLimits = _ADMISSION,
        recent_bytes: int = 128 << 20,
        sizes: Sizes = _SIZES,
        users: Users | None = None,
        secure: Secure | None = None,
        makes_unknown: bool = True,
    ) -> None:
        self.logins = Logins(users)
        self.data = DataDirectory(data_dir, durability, sizes)
        self.broker = Broker(
            self.data,
            version=VERSION,
            promise=durability,
            recent_bytes=recent_bytes,
            makes_unknown=makes_unknown,
        )
        self._clock = Clock()
        self.runner = WorkRunner(self.broker, self.data, self._clock.now_ms)
        self._limits = limits
        self._connections: dict[int, Connection] = {}
        # The sessions without a socket that have a user, by number
        self._guests: dict[int, Guest] = {}
        self.ends: dict[End, int] = dict.fromkeys(End, 0)
        self._leaving = anyio.Lock()
        self._reception = Reception(admission, secure, self.ends, limits.stalled_s)

    def now_ms(self) -> int:
        """Return the time of the broker's clock (ms). See `Clock`."""
        return self._clock.now_ms()

    @asynccontextmanager
    async def open(self, topics: list[str]) -> AsyncIterator[None]:
        """Restore the broker from its folder, create `topics`, and write the files until the end of the block."""
        self.data.acquire()
        try:
            await self.runner.recover(topics)
            async with anyio.create_task_group() as tasks:
                self.runner.start(tasks)
                tasks.start_soon(self._keep_time)
                tasks.start_soon(self.logins.run)
                yield
                with anyio.CancelScope(shield=True):
                    # Drain the connections before the files are closed, since clients may publish until their connection ends.
                    await self.drain()
                    await self.runner.finish()
                tasks.cancel_scope.cancel()
        finally:
            self.data.release()

    def handle(self, stream: SocketStream) -> Awaitable[None]:
        """Serve one connection. Raises the errors of a broken stream."""
        return self._reception.let_in(stream, self._serve)

    async def serve_stream(self, stream: ByteStream, peer: Peer, place: AdmissionPlace, access: Access | None) -> None:
        """Serve a client of a gateway that speaks the line protocol. With `access`, it has logged in already."""
        visit = Visit(peer)
        visit.place = place
        await self._serve(stream, visit, access)

    async def _serve(self, stream: ByteStream, visit: Visit, access: Access | None = None) -> None:
        if self.broker.is_draining:
            # It was accepted just before the listener closed. The drain does not know this connection, so end it here.
            self.ends[End.SHUTDOWN] += 1
            await say(stream, "-ERR shutting_down this broker is shutting down; connect again when it has restarted")
            return
        if access is None:
            access = EVERYTHING if self.logins.users is None else NOTHING
        session = self.broker.connect(visit.peer.name, access)
        login = ConnectionLogin(self.broker, self.logins, self.now_ms, session, visit.place)
        if access.user is not None and access is not EVERYTHING:
            login.note_known()
        connection = Connection(self.runner, stream, session, self._limits, login)
        visit.connection = self._connections[session.number] = connection
        self.runner.add_session(session, connection.wake)
        try:
            connection.wake()
            end = await connection.run()
            # Thousands of connections may end together. End only one in each round of the event loop, so that other tasks run
            # in between.
            async with self._leaving:
                await checkpoint()
        finally:
            del self._connections[session.number]
            self.runner.remove_session(session)
        self.ends[end] += 1
        logger.debug("connection ended", client=session.name, peer=session.peer, why=end.value)
        if end is End.SILENT:
            wanted = "command" if self.logins.users is None else "login"
            await say(stream, f"!closing no {wanted} came within {self._reception.patience_s:g} s")
        elif end is End.REMOVED:
            await say(stream, f"!closing {session.access.user} is no longer a user of this broker")

    def replace_users(self, users: Users) -> None:
        """Replace the users. Each connection gets the new access of its user; it is closed if its user was removed."""
        self.logins.users = users
        now_ms = self.now_ms()
        for connection in list(self._connections.values()):
            session = connection.session
            if session.access.user is None:
                continue
            access = users.access_of(session.access.user)
            if access is None:
                connection.close(End.REMOVED)
            elif access != session.access:
                self.broker.grant(session, access, now_ms)
        for guest in list(self._guests.values()):
            access = users.access_of(str(guest.session.access.user))
            if access is None:
                guest.session.is_leaving = True
                guest.wake()
            elif access != guest.session.access:
                self.broker.grant(guest.session, access, now_ms)
        self.do_work()

    def admit(
        self, name: str, wake: Callable[[], None], access: Access = EVERYTHING, *, peer: str = "gateway"
    ) -> Session:
        """Begin a session without a socket for a part of this process, or for a client of a gateway.

        `wake` is called when the session has output. It must only record that fact. If the users are replaced, the session
        gets the new access of its user. If that user was removed, the session is marked as leaving, and woken.
        """
        session = self.broker.connect(peer, access, name)
        session.take_output()
        self.runner.add_session(session, wake)
        if access is not EVERYTHING:
            self._guests[session.number] = Guest(session, wake)
        return session

    def dismiss(self, session: Session) -> None:
        """End a session that `admit` began."""
        self._guests.pop(session.number, None)
        self.runner.remove_session(session)

    def do_work(self) -> None:
        """Do the work that the core left."""
        self.runner.do_work()

    async def drain(self) -> None:
        """Close every connection once its output has been sent, or after `DRAIN_S` seconds."""
        self.broker.begin_drain()
        self.runner.jobs.end()
        with anyio.move_on_after(DRAIN_S):
            while any(connection.is_owed() for connection in self._connections.values()):
                await anyio.sleep(0.01)
        for connection in list(self._connections.values()):
            connection.close(End.SHUTDOWN)
        with anyio.move_on_after(DRAIN_S):
            while self._connections:
                await anyio.sleep(0.01)

    async def _keep_time(self) -> None:
        while True:
            await anyio.sleep(TICK_S)
            self.broker.set_date_shift(self._clock.shift_ms())
            try:
                self.broker.tick(self.now_ms())
            except Exception as error:  # noqa: BLE001 — a bug about one subscription must not end the broker
                self.runner.log_bug(error)
            self.do_work()
            self.runner.jobs.tick()
            now_s = time.monotonic()
            self._reception.close_silent()
            for connection in [one for one in self._connections.values() if one.is_stalled(now_s)]:
                connection.close(End.STALLED)
