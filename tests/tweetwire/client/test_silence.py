"""A peer that vanishes without closing the connection, as if a cable is pulled: only a client that waits for it notices."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from time import monotonic

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from tests.support.processes import BrokerProcess
from tweetwire import Client, Event
from tweetwire.client.engine.pauses import FIRST_S
from tweetwire.client.greeting import watch_peer

pytestmark = pytest.mark.anyio

WITHIN_S = 90.0
SUBSCRIBED = b"+OK sub t as=conn-1 from=0 pending=0\n"
OF_ITS_OWN = {b"hello client": b"+OK hello client\n", b"quit": b"+OK bye\n"}
GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Cable:
    """Carries bytes between clients and the broker; `said` has the lines of clients.

    Once pulled, it carries nothing and closes nothing.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self.is_pulled = False
        self.connections = 0
        self.said = b""
        self.port = 0
        self._broker = broker

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self, near: SocketStream) -> None:
        self.connections += 1
        with anyio.CancelScope() as scope:
            async with near, await anyio.connect_tcp("127.0.0.1", self._broker.port) as far:
                # Bytes that were on their way when a cable was pulled must not arrive over the next cable.
                is_cut = [self.is_pulled]
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._carry, far, near, is_cut, scope)
                    await self._carry(near, far, is_cut, scope)

    async def _carry(self, source: ByteStream, sink: ByteStream, is_cut: list[bool], scope: anyio.CancelScope) -> None:
        try:
            while True:
                data = await source.receive()
                if isinstance(sink, SocketStream) and sink.extra(SocketAttribute.remote_port) == self._broker.port:
                    self.said += data
                is_cut[0] |= self.is_pulled
                if not is_cut[0]:
                    await sink.send(data)
        except GONE:
            scope.cancel()


@asynccontextmanager
async def laid(broker: BrokerProcess) -> AsyncIterator[Cable]:
    cable = Cable(broker)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        cable.port = listener.extra(SocketAttribute.local_port)
        tasks.start_soon(listener.serve, cable.connect)
        with anyio.fail_after(WITHIN_S):
            yield cable
        tasks.cancel_scope.cancel()


async def test_a_client_that_waits_for_events_gets_them_over_another_connection(broker: BrokerProcess) -> None:
    async with laid(broker) as cable, Client(broker.address) as other, Client(cable.address, timeout_s=0.2) as client:
        subscription = await client.subscribe("t", as_="s", from_="earliest", create=True)
        cable.is_pulled = True
        await other.publish("t", Event(id="1", msg=1))
        while cable.connections < 3:
            await anyio.sleep(0.02)
        cable.is_pulled = False
        (event,) = await anext(subscription)
        assert (event.id, client.connects > 1) == ("1", True)


async def test_the_system_watches_over_the_machine_at_the_other_end(broker: BrokerProcess) -> None:
    async with await anyio.connect_tcp("127.0.0.1", broker.port) as stream:
        connection = stream.extra(SocketAttribute.raw_socket)
        watch_peer(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def test_a_client_without_subscriptions_sends_no_pings(broker: BrokerProcess) -> None:
    async with (
        laid(broker) as quiet,
        laid(broker) as busy,
        Client(quiet.address, timeout_s=0.1) as idle,
        Client(busy.address, timeout_s=0.1) as client,
    ):
        await idle.publish("t", Event(id="1", msg=1))
        await idle.ping()
        quiet.said = busy.said = b""
        await client.subscribe("t")
        while busy.said.count(b"ping\n") < 3:
            await anyio.sleep(0.02)
        assert quiet.said == b""


@asynccontextmanager
async def answering(answer: Callable[[bytes], Awaitable[bytes]]) -> AsyncIterator[str]:
    """Run the server in the client's process, so that a busy machine delays both equally."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.send(b"+OK tweetwire broker test, type help\n")
            rest = b""
            while True:
                try:
                    *lines, rest = (rest + await stream.receive()).split(b"\n")
                except GONE:
                    return
                for line in filter(None, lines):
                    await stream.send(OF_ITS_OWN.get(line) or await answer(line))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        with anyio.fail_after(WITHIN_S):
            yield f"127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def test_a_broker_that_answers_pings_is_never_taken_as_lost() -> None:
    pings, told = 0, anyio.Event()

    async def answer(line: bytes) -> bytes:
        nonlocal pings
        pings += line == b"ping"
        if pings > 1:
            told.set()
        return b"+PONG\n" if line == b"ping" else SUBSCRIBED

    async with answering(answer) as address, Client(address, timeout_s=0.4) as client:
        await client.subscribe("t")
        await told.wait()
        assert client.connects == 1


async def test_the_client_waits_for_a_slow_command_and_does_not_run_it_twice() -> None:
    published = 0

    async def answer(line: bytes) -> bytes:
        nonlocal published
        if not line.startswith(b"pub"):
            return SUBSCRIBED
        published += 1
        await anyio.sleep(1.0)
        return b"+OK pub t 0 synced\n"

    async with answering(answer) as address, Client(address, timeout_s=0.1) as client:
        await client.subscribe("t")
        await client.publish("t", Event(id="1", msg=1))
        assert (published, client.connects) == (1, 1)


async def test_a_broker_that_only_greets_is_asked_once_for_each_connection_after_growing_pauses() -> None:
    said: list[list[bytes]] = []

    async def end(stream: SocketStream) -> None:
        said.append([])
        async with stream:
            await stream.send(b"+OK tweetwire broker test, type help\n")
            with suppress(*GONE):
                said[-1] += (await stream.receive()).split(b"\n")
                while b"hello" not in b"".join(said[-1]):
                    said[-1] += (await stream.receive()).split(b"\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, end)
        began = monotonic()
        with anyio.fail_after(WITHIN_S):
            async with Client(f"127.0.0.1:{listener.extra(SocketAttribute.local_port)}"):
                while len(said) < 6:
                    await anyio.sleep(0.02)
        assert monotonic() - began > FIRST_S / 2 * (1 + 2 + 4 + 8)
        assert all(sum(line.startswith(b"hello") for line in lines) <= 1 for lines in said)
        tasks.cancel_scope.cancel()
