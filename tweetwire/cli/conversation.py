"""The interactive session of ``shell`` on a terminal: sends typed lines, and shows received ones."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import ByteStream

from tweetwire.cli.completion import Completion
from tweetwire.cli.connection import CommandConnection
from tweetwire.cli.display import terminal
from tweetwire.cli.screen import Screen
from tweetwire.client.aio.opening import open_stream, stream_unreachable
from tweetwire.protocol import requests
from tweetwire.protocol.errors import BrokerLost

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient

__all__ = ["converse"]

READ_BYTES: Final = 64 << 10
LEAVING_S: Final = 10.0
"""The longest wait for the broker's last reply, in seconds."""


def converse(connection: CommandConnection, client: "SyncClient", history: Path) -> None:
    """Hold a session over a new connection; `client` answers the questions of the completion.

    Raises BrokerLost if the broker ends the session, KeyboardInterrupt after Ctrl-C, and the errors of `connect`.
    """
    anyio.run(_converse, connection, Completion(client), history)


async def _converse(connection: CommandConnection, completion: Completion, history: Path) -> None:
    screen = Screen(terminal(), completion.candidates, history)
    greeting = requests.hello_line(connection.name, connection.plain_token)
    async with await _connect(connection) as stream:
        is_lost = await Conversation(stream, screen).hold(greeting)
    if screen.was_interrupted:
        raise KeyboardInterrupt
    if is_lost:
        raise BrokerLost(connection.broker)


async def _connect(connection: CommandConnection) -> ByteStream:
    context = connection.tls_context()
    try:
        with anyio.fail_after(connection.timeout):
            return await open_stream(connection.broker, context)
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise stream_unreachable(connection.broker, error, context) from error


class Conversation:
    """An interactive session on one connection: sends typed lines, and shows received ones."""

    def __init__(self, stream: ByteStream, screen: Screen) -> None:
        self._stream = stream
        self._screen = screen
        self._has_ended = anyio.Event()
        self._is_leaving = False

    async def hold(self, greeting: bytes) -> bool:
        """Run the session until either side ends it. Returns whether the broker ended it, and not the user."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            with suppress(anyio.BrokenResourceError):
                await self._stream.send(greeting)
                await self._talk()
            if not self._screen.was_interrupted:
                with anyio.move_on_after(LEAVING_S):
                    await self._has_ended.wait()
            tasks.cancel_scope.cancel()
        return not self._is_leaving

    async def _talk(self) -> None:
        async for line in self._screen.typed():
            if line.strip().lower() == "quit":
                break
            # Bytes that are not UTF-8 are sent as they were typed; the broker refuses them.
            await self._stream.send(f"{line}\n".encode(errors="surrogateescape"))
        if not self._has_ended.is_set() and not self._screen.was_interrupted:
            self._is_leaving = True
            await self._stream.send(b"quit\n")

    async def _listen(self) -> None:
        """Show received lines. All lines that have arrived are shown together."""
        rest = b""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                *lines, rest = (rest + await self._stream.receive(READ_BYTES)).split(b"\n")
                if lines:
                    self._screen.show(lines)
        self._has_ended.set()
        self._screen.end()
