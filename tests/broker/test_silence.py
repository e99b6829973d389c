"""A peer that is gone without a word, as behind a pulled cable: noticed by who waits for it, and by nobody else asked for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from broker import Client, Event
from tests.processes import BrokerProcess

pytestmark = pytest.mark.anyio

WITHIN_S = 90.0
GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Cable:
    """Lies between clients and the broker; `said` is what clients have said. Pulled, it carries nothing and ends nothing."""

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
                # What lay in a cable when it was pulled does not come when there is another one.
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


async def test_who_waits_for_events_gets_them_over_another_connection(broker: BrokerProcess) -> None:
    async with laid(broker) as cable, Client(broker.address) as other, Client(cable.address, timeout_s=0.2) as client:
        subscription = await client.subscribe("t", as_="s", from_="earliest", create=True)
        cable.is_pulled = True
        await other.publish("t", Event(id="1", msg=1))
        while cable.connections < 3:
            await anyio.sleep(0.02)
        cable.is_pulled = False
        (event,) = await anext(subscription)
        assert (event.id, client.connects > 1) == ("1", True)


async def test_who_waits_for_a_reply_gets_it_over_another_connection(broker: BrokerProcess) -> None:
    async with laid(broker) as cable, Client(cable.address, timeout_s=0.2) as client:
        await client.ping()
        cable.is_pulled = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.publish, "t", Event(id="1", msg=1))
            while cable.connections < 2:
                await anyio.sleep(0.02)
            cable.is_pulled = False
        assert client.connects > 1
        assert [event.id for event in (await client.read("t", 0)).events][-1] == "1"


async def test_nobody_is_asked_who_is_not_waited_for(broker: BrokerProcess) -> None:
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


async def test_a_broker_that_answers_is_there_however_long_nothing_happens() -> None:
    """In one process with the client, so that both are held up together where the machine is busy."""
    pings, told = 0, anyio.Event()

    async def answer(stream: SocketStream) -> None:
        nonlocal pings
        async with stream:
            await stream.send(b"+OK tweetwire broker test, type help\n")
            rest = b""
            while True:
                try:
                    *lines, rest = (rest + await stream.receive()).split(b"\n")
                except GONE:
                    return
                for line in filter(None, lines):
                    pings += line == b"ping"
                    await stream.send(b"+PONG\n" if line == b"ping" else b"+OK sub t as=conn-1 from=0 pending=0\n")
                if pings > 1:
                    told.set()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        address = f"127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        with anyio.fail_after(WITHIN_S):
            async with Client(address, timeout_s=0.4) as client:
                await client.subscribe("t")
                await told.wait()
                assert client.connects == 1
        tasks.cancel_scope.cancel()
