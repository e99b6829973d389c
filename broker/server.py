"""The broker as a process: its files, its listener, and the tasks that carry out what the core decides.

A writer task for each topic commits in groups: while one batch is on its way to the disk, in a thread, the next one
fills. What else is to be done with files is the `Keeper`'s.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio import to_thread
from anyio.abc import ByteStream, SocketAttribute, TaskGroup

from broker.connection import Connection, End, Limits, Users
from broker.core import EVERYTHING, NOTHING, Broker, Fetch, Lookup, Reading, Session, Topic
from broker.data_directory import DataDirectory, Durability, Sizes
from broker.keeper import Keeper

__all__ = ["Server"]

_SIZES: Final = Sizes()
TICK_S: Final = 0.1
DRAIN_S: Final = 5.0

logger = structlog.stdlib.get_logger()


class Server:
    """Serves one data directory on one or more listeners."""

    def __init__(
        self,
        data_dir: Path,
        durability: Durability,
        *,
        limits: Limits,
        connections_max: int = 10_000,
        recent_bytes: int = 128 << 20,
        sizes: Sizes = _SIZES,
        users: Users | None = None,
    ) -> None:
        self.users = users
        self._connections_max = connections_max
        self.data = DataDirectory(data_dir, durability, sizes)
        self.broker = Broker(self.data, version=version("tweetwire"), promise=durability, recent_bytes=recent_bytes)
        self._keeper = Keeper(self.broker, self.data, self.carry_out)
        self._limits = limits
        self._connections: dict[int, Connection] = {}
        self._guests: dict[int, Callable[[], None]] = {}
        self._writers: dict[Topic, anyio.Event] = {}
        self._lookups = anyio.CapacityLimiter(1)
        self._tasks: TaskGroup | None = None
        self.ends: dict[End, int] = dict.fromkeys(End, 0)

    @staticmethod
    def now_ms() -> int:
        """The broker's clock: milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    @asynccontextmanager
    async def open(self, topics: list[str]) -> AsyncIterator[None]:
        """Recover what the folder holds, make `topics`, and keep the files written until the end of the block."""
        self.data.acquire()
        try:
            await self._keeper.recover(topics)
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._keeper.keep_journal)
                tasks.start_soon(self._keeper.forget_old)
                tasks.start_soon(self._keep_time)
                self.carry_out()
                yield
                with anyio.CancelScope(shield=True):
                    await self._close()
                tasks.cancel_scope.cancel()
        finally:
            self.data.release()

    async def handle(self, stream: ByteStream) -> None:
        """Serve one connection."""
        peer = stream.extra(SocketAttribute.remote_address, "")
        name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        if len(self._connections) >= self._connections_max:
            logger.warning("too many connections", peer=name, limit=self._connections_max)
            self.ends[End.TOO_MANY] += 1
            await self._turn_away(stream, f"too_many {self._connections_max} connections are open")
            return
        if self.broker.is_draining:
            # Accepted before the listening ended: the drain does not know of it, and would never end it.
            self.ends[End.SHUTDOWN] += 1
            await self._turn_away(stream, "shutting_down this broker ends; come back when it is started again")
            return
        session = self.broker.connect(name, EVERYTHING if self.users is None else NOTHING)
        connection = self._connections[session.number] = Connection(self, stream, session, self._limits)
        async with stream:
            connection.wake()
            end = await connection.run()
            self.ends[end] += 1
            del self._connections[session.number]
            self.broker.disconnect(session, self.now_ms())
            self.carry_out()
        logger.debug("connection ended", client=session.name, peer=session.peer, why=end.value)

    def admit(self, name: str, wake: Callable[[], None]) -> Session:
        """Let a part of this process take part as a client that may do everything, without a socket.

        `wake` is called when the session has output; it must not do more than note that.
        """
        session = self.broker.connect("gateway", EVERYTHING)
        session.name = name
        session.take_output()
        self._guests[session.number] = wake
        return session

    def dismiss(self, session: Session) -> None:
        """End a session that was admitted."""
        del self._guests[session.number]
        self.broker.disconnect(session, self.now_ms())
        self.carry_out()

    async def _turn_away(self, stream: ByteStream, refusal: str) -> None:
        """Refuse a connection in one line."""
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stream.send(f"-ERR {refusal}\n".encode())

    def carry_out(self) -> None:
        """Do what the core left to do; everything that has to wait is given to the task that owns it."""
        work = self.broker.work.take()
        if work.records:
            self._keeper.keep(work.records, is_awaited=work.must_sync_records)
        for topic in work.topics:
            self._wake_writer(topic)
        for fetch in work.fetches:
            self._start(partial(self._fetch, fetch))
        for reading in work.readings:
            self._start(partial(self._read, reading))
        for lookup in work.lookups:
            self._start(partial(self._look_up, lookup))
        for session in work.sessions:
            connection = self._connections.get(session.number)
            if connection is not None:
                connection.wake()
            elif session.number in self._guests:
                self._guests[session.number]()

    async def drain(self) -> None:
        """Close every connection once what it is owed has been sent, or the time for it is over."""
        self.broker.is_draining = True
        with anyio.move_on_after(DRAIN_S):
            while any(connection.is_owed() for connection in self._connections.values()):
                await anyio.sleep(0.01)
        for connection in list(self._connections.values()):
            connection.close(End.SHUTDOWN)
        with anyio.move_on_after(DRAIN_S):
            while self._connections:
                await anyio.sleep(0.01)

    def _wake_writer(self, topic: Topic) -> None:
        due = self._writers.get(topic)
        if due is None:
            self._writers[topic] = due = anyio.Event()
            self._start(partial(self._write_topic, topic))
        due.set()

    async def _write_topic(self, topic: Topic) -> None:
        """Write a topic's batches one after the other, each as large as it has become."""
        while True:
            while topic.has_pending:
                needed, batch = topic.needed_record, topic.begin_write()
                try:
                    if needed > self.broker.synced_records:
                        await self._keeper.sync(needed)
                    await to_thread.run_sync(self.data.append, topic.log, batch)
                except OSError as error:
                    logger.error("cannot write", topic=topic.name, reason=error.strerror)
                    self.broker.not_committed(topic, f"{error.strerror}; nothing was stored", self.now_ms())
                else:
                    self.broker.committed(topic, batch, self.now_ms())
                self.carry_out()
            due = self._writers[topic] = anyio.Event()
            await due.wait()

    async def _fetch(self, fetch: Fetch) -> None:
        topic = self.broker.topics[fetch.consumer.subscription.topic]
        found = await to_thread.run_sync(topic.read_lines, fetch.offsets)
        self.broker.fetched(fetch, found, self.now_ms())
        self.carry_out()

    async def _read(self, reading: Reading) -> None:
        lines, after, damaged = await to_thread.run_sync(
            reading.topic.log.read, reading.first, reading.count, reading.bytes_max
        )
        self.broker.has_read(reading, lines, after, len(damaged))
        self.carry_out()

    async def _look_up(self, lookup: Lookup) -> None:
        reply = await to_thread.run_sync(lookup.look_up, limiter=self._lookups)
        self.broker.has_looked_up(lookup, reply)
        self.carry_out()

    async def _keep_time(self) -> None:
        while True:
            await anyio.sleep(TICK_S)
            self.broker.tick(self.now_ms())
            self.carry_out()
            now_s = time.monotonic()
            for connection in [one for one in self._connections.values() if one.is_stalled(now_s)]:
                connection.close(End.STALLED)

    async def _close(self) -> None:
        """End in this order: connections, then pending batches, then the state, which tells where the logs end."""
        await self.drain()
        while any(topic.next > topic.visible for topic in self.broker.topics.values()):
            await anyio.sleep(0.01)
        await self._keeper.close()
        for topic in self.broker.topics.values():
            topic.log.close()

    def _start(self, task: Callable[[], object]) -> None:
        if self._tasks is None:
            raise RuntimeError("the server is not open")
        self._tasks.start_soon(task)  # type: ignore[arg-type]  # partial hides the coroutine
