"""Routed lines reach each client's socket in order, and the lines that were not fully sent are known."""

import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from broker.gateways.event_source.clients import Client, Clients

pytestmark = pytest.mark.anyio

WHOLE = b"".join(b"%d|P|1|2\n" % number for number in range(1_000_000))
"""More bytes than the system's buffers between gateway and client hold."""


@asynccontextmanager
async def connected(id_: bytes = b"1") -> AsyncIterator[tuple[Client, SocketStream, socket.socket]]:
    """Yield a client, its stream, and the socket at the other end."""
    ends = anyio.create_memory_object_stream[SocketStream](1)
    with ends[0], ends[1], socket.socket() as far:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, ends[0].send)
            # A read without a limit could block the event loop forever, and with it every deadline.
            far.settimeout(60.0)
            far.connect(("127.0.0.1", listener.extra(SocketAttribute.local_port)))
            stream = await ends[1].receive()
            tasks.cancel_scope.cancel()
        async with stream:
            client = Client(id_, stream)
            try:
                yield client, stream, far
            finally:
                with suppress(OSError):
                    client.close()


async def test_bytes_that_the_system_did_not_take_are_kept_in_whole_lines_and_leave_in_order() -> None:
    async with connected() as (client, _, far):
        client.lines.append(WHOLE)
        client.send()
        unsent = client.unsent()
        assert client.is_behind
        assert WHOLE.endswith(unsent)
        assert WHOLE[: -len(unsent)].endswith(b"\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.send_all, 60.0)
            reading = anyio.to_thread.run_sync(read_all, far, len(WHOLE) + len(b"last\n"))
            client.lines.append(b"last\n")
            client.end()
            assert await reading == WHOLE + b"last\n"
        assert (client.unsent(), client.is_behind) == (b"", False)


async def test_lines_that_a_broken_connection_has_not_taken_are_kept() -> None:
    async with connected() as (client, stream, far):
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        with pytest.raises(anyio.BrokenResourceError):
            await stream.receive()
        client.lines += [b"1|B\n", b"2|B\n"]
        client.send()
        assert client.unsent() == b"1|B\n2|B\n"
        with pytest.raises(anyio.BrokenResourceError):
            await client.send_all(60.0)
        assert client.unsent() == b"1|B\n2|B\n"


async def test_a_closed_client_writes_into_no_other_file() -> None:
    async with connected() as (client, _, _):
        client.close()
        readable, writable = os.pipe2(os.O_NONBLOCK)
        client.lines.append(b"1|B\n")
        client.send()
        with pytest.raises(BlockingIOError):
            os.read(readable, 1)
        os.close(readable)
        os.close(writable)


@pytest.mark.parametrize("seed", range(20))
async def test_broadcasts_keep_their_place_among_the_lines_of_each_client(seed: int) -> None:
    dice = Random(seed)
    ids = (b"1", b"2", b"3")
    wanted = dict.fromkeys(ids, b"")
    async with connected(b"1") as one, connected(b"2") as two, connected(b"3") as three:
        clients = Clients()
        clients.by_id.update((client.id, client) for client, _, _ in (one, two, three))
        number = 0
        for _ in range(5):
            run = [dice.choice((ids, *((id_,) for id_ in ids), (b"1", b"away"), ())) for _ in range(dice.randint(0, 9))]
            lines = [b"%d\n" % n for n in range(number, number + len(run))]
            number += len(run)
            clients.begin(line for line, to in zip(lines, run, strict=True) if to is ids)
            for line, to in zip(lines, run, strict=True):
                if to is ids:
                    clients.broadcast(line)
                else:
                    assert clients.give(to, line) == len(set(to) & set(ids))
                for id_ in set(to) & set(ids):
                    wanted[id_] += line
            clients.finish()
            if dice.random() < 0.5:
                await clients.send()
        await clients.send()
        got = {client.id: read_all(far, len(wanted[client.id])) for client, _, far in (one, two, three)}
        assert got == wanted
        assert not any(client.unsent() for client, _, _ in (one, two, three))


def read_all(far: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        some = far.recv(1 << 20)
        assert some, f"closed after {len(data)} of {size} bytes"
        data += some
    return bytes(data)
