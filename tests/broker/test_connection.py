"""A connection handles a large read in slices. Between them, other clients have their turn and replies are sent."""

import sys
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from broker import executor
from broker.connection import Connection, End, Limits
from broker.login import STRANGER_BYTES, ConnectionLogin
from tests.broker.core.harness import Core
from tweetwire.protocol import parse_lines

SHORT_LINES = b"x\n" * 125_000 + b"quit\n"

pytestmark = pytest.mark.anyio


class Place:
    """A place in the limit of connections that the broker never gives to another client."""

    def keep(self) -> None: ...


class Peer:
    """A stream that delivers `data` in pieces as large as the reader allows, and records the bytes sent to it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[int] = []
        self.may_send = anyio.Event()
        self.sent = b""

    async def receive(self, max_bytes: int) -> bytes:
        self.asked.append(max_bytes)
        await anyio.lowlevel.checkpoint()
        if not self.data:
            raise anyio.EndOfStream
        data, self.data = self.data[:max_bytes], self.data[max_bytes:]
        return data

    async def send(self, data: bytes) -> None:
        await self.may_send.wait()
        self.sent += data


def connection_of(core: Core, peer: Peer, users: Any = None) -> Connection:
    def do_work() -> None:
        core.carry_out()
        connection.wake()

    def now_ms() -> int:
        return core.now_ms

    runner: Any = SimpleNamespace(broker=core.broker, now_ms=now_ms, do_work=do_work)
    logins: Any = SimpleNamespace(users=users)
    place: Any = Place()
    stream: Any = peer
    session = core.connect()
    login = ConnectionLogin(core.broker, logins, now_ms, session, place)
    connection = Connection(runner, stream, session, Limits(1 << 20, 1 << 20, 60), login)
    return connection


async def test_a_large_read_is_parsed_no_further_than_its_replies_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def parse(lines: list[bytes], line_bytes_max: int) -> Any:
        parsed.append(len(lines))
        return parse_lines(lines, line_bytes_max)

    monkeypatch.setattr(executor, "parse_lines", parse)
    peer = Peer(SHORT_LINES)
    connection = connection_of(Core(), peer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        await anyio.wait_all_tasks_blocked()
        assert max(parsed) <= executor.SLICE_LINES
        assert sum(parsed) < 125_000 // 2
        peer.may_send.set()
    assert sum(parsed) == 125_001
    assert connection.end is End.LEFT


async def test_an_idle_connection_releases_the_bytes_that_it_received() -> None:
    # The data is built at run time, since each constant has further references.
    received = [b"ping\n" * count for count in (30_000, 40_000)]
    arriving = list(received)

    class IdlePeer(Peer):
        async def receive(self, max_bytes: int) -> bytes:
            await anyio.lowlevel.checkpoint()
            if not arriving:
                await anyio.sleep_forever()
            return arriving.pop(0)

    peer = IdlePeer(b"")
    peer.may_send.set()
    connection = connection_of(Core(), peer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        while peer.sent.count(b"+PONG") < 70_000:
            await anyio.sleep(0.001)
        await anyio.wait_all_tasks_blocked()
        # The only references are those of the list and of the call itself.
        assert [sys.getrefcount(received[0]), sys.getrefcount(received[1])] == [2, 2]
        tasks.cancel_scope.cancel()


async def test_before_a_login_little_is_read_at_a_time() -> None:
    peer = Peer(SHORT_LINES)
    peer.may_send.set()
    await connection_of(Core(), peer, users="some").run()
    assert set(peer.asked) == {STRANGER_BYTES}
