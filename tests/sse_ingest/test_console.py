"""A program at the telnet port can detect the end of each answer while tweets are ingested."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from demo.ports import free_port
from sse_ingest.account import SourceAccount
from sse_ingest.console import Console
from sse_ingest.onlookers import Onlookers
from sse_ingest.pool import PoolSize
from sse_ingest.sources import SourceState
from tweetwire.runtime.listening import accept_forever

pytestmark = pytest.mark.anyio


def ingest() -> Any:
    """Return a stand-in for the parts of an ingester that the console uses, with one source."""
    line = SimpleNamespace(
        reader=SimpleNamespace(state=SourceState("host:4000/tweets/1")),
        account=SourceAccount(),
        pool=SimpleNamespace(
            name="source", workers=1, wanted=1, size=PoolSize(), seconds_per_event=0.001, panics=3, crashes=0
        ),
        inbox=[],
    )
    return SimpleNamespace(
        is_started=True,
        onlookers=Onlookers(),
        store=SimpleNamespace(outage=None),
        lines=[line],
        hashtags=SimpleNamespace(top=lambda most: [("a", 2), ("b", 1)][:most], is_whole=False),
        start=lambda: None,
    )


class Client:
    """A program that reads each answer up to its end."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._incoming = BufferedByteReceiveStream(stream)

    async def line(self) -> str:
        with anyio.fail_after(5):
            return (await self._incoming.receive_until(b"\r\n", 10_000)).decode()

    async def ask(self, command: str) -> list[str]:
        """Return the lines of an answer before its end."""
        await self._stream.send(f"{command}\r\n".encode())
        answer = []
        while (line := await self.line()) != ".":
            if not line.startswith(("tweet: ", "(")):
                answer.append(line)
        return answer


async def test_answers_of_any_number_of_lines_have_an_end_and_the_next_answer_is_its_own() -> None:
    of = ingest()
    port = free_port()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(accept_forever, listener, Console(of, is_autostarted=True).serve, tasks)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            client = Client(stream)
            assert "help" in await client.line()
            await stream.send(b"twitter\r\n")
            assert len(await client.ask("status")) == 2
            # The answer grows from one command to the next, as while a source stops.
            of.store.outage = "connection refused"
            of.lines[0].account.notices_by_name = Counter(delete=2)
            of.lines[0].reader.state.gaps = 1
            of.onlookers.show_tweet("source#1", "a tweet between two answers\n.\n")
            assert len(await client.ask("status")) == 5
            (workers,) = await client.ask("workers")
            assert workers.endswith("3 planned panics of the source, 0 crashes")
            assert [line.split()[0] for line in await client.ask("hashtags")] == ["2", "1", "of"]
            assert len(await client.ask("help")) == 7
            await stream.send(b"nonsense\r\n")
            assert (await client.line()).startswith("error: ")
        tasks.cancel_scope.cancel()
