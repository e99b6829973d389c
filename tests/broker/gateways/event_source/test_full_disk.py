"""The gateway on a disk that fills and empties: unstored events are not routed, and in the end every client has all lines."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio.abc import ByteStream

from broker.gateways import EventSource, EventSourceOptions
from broker.gateways.event_source import outlet as outlets
from broker.server import Server
from demo.ports import free_port
from tests.broker.gateways.event_source.filling import FillingDisk, serving, stored_messages
from tests.broker.gateways.event_source.maze import expected, random_lines, shuffled
from tests.support.waiting import until_async

pytestmark = pytest.mark.anyio

COUNT, PIECE = 3000, 100
IDS = ("1", "2", "3", "4")


@asynccontextmanager
async def gateway(server: Server, *, has_inboxes: bool) -> AsyncIterator[tuple[int, int]]:
    """Serve the gateway. Yields the ports for the source and for the clients."""
    ports = free_port(), free_port()
    options = EventSourceOptions("127.0.0.1", *ports, 100_000, 100, 60.0, has_inboxes=has_inboxes, goes_on=False)
    async with EventSource(server, options).open():
        yield ports


async def whole(stream: ByteStream) -> list[str]:
    """Return all lines until the gateway closes the connection."""
    data = bytearray()
    with anyio.fail_after(100):
        while True:
            try:
                data += await stream.receive()
            except anyio.EndOfStream:
                return data.decode().split("\n")[:-1]


def has_refused_or_is_free(disk: FillingDisk, refused: int) -> bool:
    return disk.refused > refused or not disk.is_full


@pytest.mark.parametrize("has_inboxes", [False, True])
async def test_on_a_disk_that_fills_and_empties_each_client_gets_exactly_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_inboxes: bool
) -> None:
    monkeypatch.setattr(outlets, "RETRY_S", 0.001)
    dice, disk = Random(7), FillingDisk()
    lines = random_lines(COUNT, 6, weights=(30, 10, 0, 33, 25))
    mixed = shuffled(lines, 50)
    got: dict[str, list[str]] = {}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(tmp_path / "broker", disk))
        source_port, client_port = await stack.enter_async_context(gateway(server, has_inboxes=has_inboxes))
        clients = {id_: await connect(stack, client_port, id_) for id_ in IDS}
        await until_async(lambda: server.broker.counts["event_source_clients"] == len(IDS))
        async with anyio.create_task_group() as tasks:
            for id_, stream in clients.items():
                tasks.start_soon(note, got, id_, stream)
            async with await anyio.connect_tcp("127.0.0.1", source_port) as source:
                for first in range(0, COUNT, PIECE):
                    await source.send("".join(f"{line}\n" for line in mixed[first : first + PIECE]).encode())
                    disk.is_full = dice.random() < (0.7 if disk.is_full else 0.3)
                    refused = disk.refused
                    await until_async(partial(has_refused_or_is_free, disk, refused))
                disk.is_full = False
        assert disk.refused
        assert got == expected(lines, IDS)
        assert stored_messages(server, "event_source") == [*lines, None]
        if has_inboxes:
            absent = expected(lines, ["5", "6"])
            await until_async(lambda: stored_count(server, "inbox.5", "inbox.6") == sum(map(len, absent.values())))
            assert {id_: stored_messages(server, f"inbox.{id_}") for id_ in absent} == absent


async def test_an_event_that_an_inbox_had_no_room_for_is_stored_before_newer_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "RETRY_S", 0.01)
    disk = FillingDisk("inbox.")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(tmp_path / "broker", disk))
        source_port, client_port = await stack.enter_async_context(gateway(server, has_inboxes=True))
        disk.is_full = True
        async with await anyio.connect_tcp("127.0.0.1", source_port) as source:
            await source.send(b"1|P|9|1\n2|P|9|1\n")
            await until_async(lambda: disk.refused)
            client = await connect(stack, client_port, "1")
            await until_async(lambda: server.broker.counts["event_source_clients"] == 1)
            await source.send(b"3|P|9|1\n")
            await until_async(lambda: server.broker.counts["event_source_events"] == 3)
            disk.is_full = False
        assert await whole(client) == ["1|P|9|1", "2|P|9|1", "3|P|9|1"]


async def test_a_stored_event_is_sent_although_the_next_is_refused(tmp_path: Path) -> None:
    disk = FillingDisk("event_source")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(tmp_path / "broker", disk))
        source_port, client_port = await stack.enter_async_context(gateway(server, has_inboxes=False))
        client = await connect(stack, client_port, "1")
        await until_async(lambda: server.broker.counts["event_source_clients"] == 1)
        async with await anyio.connect_tcp("127.0.0.1", source_port) as source:
            await source.send(b"1|P|9|1\n")
            await until_async(lambda: server.broker.topics["event_source"].log.next == 1)
            disk.is_full = True
            await source.send(b"2|P|9|1\n")
            with anyio.fail_after(100):
                assert await client.receive() == b"1|P|9|1\n"
            await until_async(lambda: disk.refused)
            disk.is_full = False


async def connect(stack: AsyncExitStack, port: int, id_: str) -> ByteStream:
    stream = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
    await stream.send(f"{id_}\n".encode())
    return stream


async def note(got: dict[str, list[str]], id_: str, stream: ByteStream) -> None:
    got[id_] = await whole(stream)


def stored_count(server: Server, *topics: str) -> int:
    return sum(server.broker.topics[topic].log.next for topic in topics if topic in server.broker.topics)
