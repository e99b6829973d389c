"""``shell``: a telnet that knows the protocol, with line editing, history, completion and colours.

On a terminal, what is typed is sent as it is, and what comes is shown at any time, above the line that is being typed.
Without a terminal it sends its input and writes what comes byte for byte, so that a script can use it.
"""

import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import ByteStream
from pydantic import Field

from broker.cli.completion import Completion
from broker.cli.connection import Connection, command_config
from broker.cli.display import terminal
from broker.errors import BrokerLost
from broker.program import Name
from broker.protocol import replies

if TYPE_CHECKING:
    from broker.cli.screen import Screen

__all__ = ["Shell"]

READ_BYTES: Final = 64 << 10
LEAVING_S: Final = 10.0
COMPLETING_S: Final = 5.0
"""While a completion is waited for, no key does anything; a broker that is slower is asked for no more of them."""

LAST_WORD: Final = b"+OK bye\n"


class Shell(Connection):
    """Talk to the broker by hand: the protocol of telnet, with history, completion (Tab) and colours. Ctrl-D ends it."""

    model_config = command_config("shell")

    name: Name = Field("shell", description="name that this client gives itself, or that of a user")
    history: Path = Field(
        Path("~/.tweetwire_history"), description="file of the lines typed before; those with a token are left out"
    )

    def carry_out(self) -> None:
        """Converse until either side ends it. Raises BrokerLost where the broker did."""
        if sys.stdin.isatty() and sys.stdout.isatty():
            quick = self.model_copy(update={"timeout": min(self.timeout, COMPLETING_S)})
            with quick.connect() as client:
                anyio.run(self._converse, Completion(client))
        else:
            with self.connect_socket() as connection:
                self._pass_on(connection)

    async def _converse(self, completion: Completion) -> None:
        # The editor takes a fifth of a second to import, which the other commands need not wait for.
        from broker.cli.screen import Screen  # noqa: PLC0415

        screen = Screen(terminal(), completion.candidates, self.history.expanduser())
        async with await self.connect_stream() as stream:
            is_lost = await Conversation(stream, screen).hold(self._greeting)
        if screen.was_interrupted:
            raise KeyboardInterrupt
        if is_lost:
            raise BrokerLost(self.broker)

    def _pass_on(self, connection: socket.socket) -> None:
        """Send the input, and write what comes meanwhile and after it. Raises BrokerLost."""
        output = Output(connection)
        output.start()
        with suppress(OSError):
            connection.sendall(self._greeting)
            for line in sys.stdin.buffer:
                connection.sendall(line if line.endswith(b"\n") else line + b"\n")
                if line.strip().lower() == b"quit":
                    break
            else:
                connection.sendall(b"quit\n")
        output.join(LEAVING_S)
        if not output.is_whole:
            raise BrokerLost(self.broker)

    @property
    def _greeting(self) -> bytes:
        return replies.hello_line(self.name, self.plain_token)


class Output(threading.Thread):
    """Writes what comes on a connection until its end, and sees whether that is the broker's last word."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(name="output", daemon=True)
        self.is_whole = False
        self._connection = connection

    def run(self) -> None:
        """Write until the end."""
        last = b""
        with suppress(OSError):
            while data := self._connection.recv(READ_BYTES):
                last = (last + data)[-len(LAST_WORD) :]
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        self.is_whole = last == LAST_WORD


class Conversation:
    """The two directions of one connection."""

    def __init__(self, stream: ByteStream, screen: "Screen") -> None:
        self._stream = stream
        self._screen = screen
        self._has_ended = anyio.Event()
        self._is_leaving = False

    async def hold(self, greeting: bytes) -> bool:
        """Send what is typed and show what comes until either side ends it. Returns whether the other side did."""
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
            # What is no UTF-8 goes as it was typed, and the broker says so.
            await self._stream.send(f"{line}\n".encode(errors="surrogateescape"))
        if not self._has_ended.is_set() and not self._screen.was_interrupted:
            self._is_leaving = True
            await self._stream.send(b"quit\n")

    async def _listen(self) -> None:
        """Show what comes, as much at a time as has arrived."""
        rest = b""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                *lines, rest = (rest + await self._stream.receive(READ_BYTES)).split(b"\n")
                if lines:
                    self._screen.show(lines)
        self._has_ended.set()
        self._screen.end()
