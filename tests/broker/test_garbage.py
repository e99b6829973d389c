"""The schedule of full garbage collections, and clients that must leave no reference cycles."""

import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, TaskGroup

from broker import garbage
from broker.connection import Limits
from broker.garbage import ADDED_MAX, YOUNG_MAX, collect_when_due
from broker.server import Server
from broker.users import UsersFile
from tests.support.users import entry
from tweetwire.runtime.listening import accept_forever, listen

pytestmark = pytest.mark.anyio

CONNECTIONS = 40


@pytest.fixture
def restored_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def test_young_objects_are_collected_although_as_many_old_objects_are_freed(restored_collector: None) -> None:
    connections = [[n] for n in range(10 * YOUNG_MAX)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect_when_due, lambda: len(connections))
        await anyio.wait_all_tasks_blocked()
        for n in range(len(connections)):
            connections[n] = [n]
        # Python has not noticed them: it counts each freed list against a new one.
        assert len(gc.get_objects(generation=0)) > YOUNG_MAX
        with anyio.fail_after(60):
            while len(gc.get_objects(generation=0)) > YOUNG_MAX:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


class Node:
    """An object that can be in a reference cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


async def old_cycle(tasks: TaskGroup, connected: list[int]) -> weakref.ref[Node]:
    """Make a reference cycle of objects that a collection has excluded from later ones, and return a reference to it."""
    tasks.start_soon(collect_when_due, lambda: len(connected))
    await anyio.wait_all_tasks_blocked()
    node = Node()
    node.other = node
    before = gc.get_freeze_count()
    added = [[n] for n in range(2 * ADDED_MAX)]
    with anyio.fail_after(60):
        while gc.get_freeze_count() < before + len(added):
            await anyio.sleep(0.01)
    return weakref.ref(node)


async def test_objects_that_a_collection_leaves_are_excluded_from_the_next_ones(restored_collector: None) -> None:
    async with anyio.create_task_group() as tasks:
        node = await old_cycle(tasks, [1])
        gc.collect()
        assert node() is not None
        tasks.cancel_scope.cancel()


async def test_all_objects_are_looked_at_when_no_client_has_been_connected_for_a_while(
    restored_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "IDLE_S", 0.2)
    connected = [1]
    async with anyio.create_task_group() as tasks:
        node = await old_cycle(tasks, connected)
        connected.clear()
        with anyio.fail_after(60):
            while node() is not None:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[Server, int]]:
    (tmp_path / "users.toml").write_text(entry("boss", "right", "admin = true"))
    users = UsersFile(tmp_path / "users.toml")
    server = Server(tmp_path / "b", "memory", limits=Limits(1 << 20, 1 << 20, 30.0), users=users)
    with anyio.fail_after(60):
        async with (
            server.open(["t"]),
            await listen("127.0.0.1", 0, "--port") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(accept_forever, listener, server.handle, tasks)
            yield server, listener.extra(SocketAttribute.local_port)
            tasks.cancel_scope.cancel()


async def converse(server: Server, port: int, said: bytes, replies: int) -> None:
    """Send commands on many connections at once, wait for the replies, and close them."""
    streams = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(CONNECTIONS)]
    for stream in streams:
        received = b""
        if said:
            await stream.send(said)
        while received.count(b"\n") < 1 + replies:
            received += await stream.receive()
        await stream.aclose()
    del stream, streams
    while server.broker.sessions:
        await anyio.sleep(0.01)
    await anyio.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("said", "replies"),
    [
        (b"", 0),
        (b"ping\n", 1),
        (b'nonsense\npub t {"id":1}\npub t nonsense\nack\n\xff\n', 5),
        (b"hello boss token=wrong\n", 1),
        (b'hello boss token=right\npub t {"id":"1","msg":1}\nsub t from=earliest\nack t @99\nnack t x\n', 6),
        (
            b"hello boss token=right\nsub t.* as=s\nsub u.* prefetch=9\n"
            b'pub t.a {"id":"1","msg":1}\npub u.a {"id":"1","msg":1}\n',
            7,
        ),
        (b"hello boss token=right\nread t 0\nstats\ntopics\nexplain t x as=s\nquit\n", 6),
    ],
)
async def test_a_connection_leaves_no_reference_cycles_when_it_has_ended(
    tmp_path: Path, said: bytes, replies: int
) -> None:
    async with serving(tmp_path) as (server, port):
        # The first round fills caches.
        await converse(server, port, said, replies)
        gc.collect()
        gc.disable()
        try:
            await converse(server, port, said, replies)
            assert gc.collect() < CONNECTIONS
        finally:
            gc.enable()
