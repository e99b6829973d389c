"""The ingester's telnet port, without an ingester, when many clients connect and send nothing."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from sse_ingest import console
from sse_ingest.console import CONNECTIONS_MAX, Console
from sse_ingest.ingest import Ingest
from tweetwire.runtime.listening import accept_forever, listen

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """Serve `help` and `quit`, which need no ingester. Yields the port."""
    served = Console(cast(Ingest, None), is_autostarted=True)
    with anyio.fail_after(60):
        async with await listen("127.0.0.1", 0, "--port") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_forever, listener, served.serve, tasks)
            yield listener.extra(SocketAttribute.local_port)
            tasks.cancel_scope.cancel()


async def answer(person: SocketStream, command: bytes) -> bytes:
    lines = BufferedByteReceiveStream(person)
    await lines.receive_until(b"\n", 1000)
    await person.send(command + b"\r\n")
    return await lines.receive_until(b"\n", 1000)


async def test_silent_connections_keep_no_client_out() -> None:
    async with serving() as port, AsyncExitStack() as stack:
        early = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        assert (await answer(early, b"help")).startswith(b"twitter ")
        for _ in range(2 * CONNECTIONS_MAX):
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        late = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        assert (await answer(late, b"help")).startswith(b"twitter ")
        await early.send(b"quit\r\n")
        with pytest.raises(anyio.EndOfStream):
            while True:
                await early.receive()


async def test_a_connection_that_types_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "FIRST_COMMAND_S", 0.2)
    async with (
        serving() as port,
        await anyio.connect_tcp("127.0.0.1", port) as typing,
        await anyio.connect_tcp("127.0.0.1", port) as silent,
    ):
        assert (await answer(typing, b"help")).startswith(b"twitter ")
        await silent.send(b"\r\n")
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            while True:
                await silent.receive()
        await typing.send(b"quit\r\n")
        received = b""
        with pytest.raises(anyio.EndOfStream):
            while True:
                received += await typing.receive()
        assert received.endswith(b"bye\r\n")
