"""``shell``: a telnet that knows the protocol, with line editing, history, completion and colours.

On a terminal, each typed line is sent unchanged. Received lines appear at any time, above the line that is being typed.
Without a terminal, the input is sent and all received bytes are written unchanged, so that a script can use the command.
"""

import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

from msgspec import structs

from tweetwire.cli.connection import ClientName, CommandConnection
from tweetwire.cli.flags import Flag
from tweetwire.cli.kinds import FILE
from tweetwire.client.addresses import split_address
from tweetwire.client.greeting import unreachable
from tweetwire.protocol import requests
from tweetwire.protocol.errors import BrokerLost

__all__ = ["Shell"]

READ_BYTES: Final = 64 << 10
LEAVING_S: Final = 10.0
"""The longest wait for the end of the connection after the last line, in seconds."""

COMPLETING_S: Final = 5.0
"""The longest wait for a completion, in seconds. The editor ignores keys meanwhile."""

LAST_WORD: Final = b"+OK bye\n"


class Shell(CommandConnection, kw_only=True):
    """Type commands to the broker as in telnet, with history, completion (Tab) and colours. Ctrl-D ends the session."""

    examples = ("tweetwire shell", "tweetwire shell < commands.txt")

    name: ClientName = "shell"
    history: Annotated[Path, Flag(FILE, "file with the history of typed lines; lines with a token are left out")] = (
        Path("~/.tweetwire_history")
    )

    def run_command(self) -> None:
        """Run the session until either side ends it. Raises BrokerLost if the broker ends it."""
        if sys.stdin.isatty() and sys.stdout.isatty():
            # The editor and anyio take about 0.2 s to import, and a script does not need them.
            from tweetwire.cli.conversation import converse  # noqa: PLC0415

            quick = structs.replace(self, timeout=min(self.timeout, COMPLETING_S))
            with quick.connect() as client:
                converse(self, client, self.history.expanduser())
        else:
            with self._connect_socket() as connection:
                self._pass_on(connection)

    def _connect_socket(self) -> socket.socket:
        """Return a connected socket, on which nothing was sent and which has no timeout.

        Raises BrokerUnreachable, TlsFailed, StartError.
        """
        host, port = split_address(self.broker)
        context = self.tls_context()
        try:
            connection = socket.create_connection((host, port), self.timeout)
            if context is not None:
                connection = context.wrap_socket(connection, server_hostname=host)
        except OSError as error:
            raise unreachable(self.broker, error, context) from error
        connection.settimeout(None)
        return connection

    def _pass_on(self, connection: socket.socket) -> None:
        """Send the input, and write everything received until the broker has answered it. Raises BrokerLost."""
        output = Output(connection)
        output.start()
        with suppress(OSError):
            connection.sendall(requests.hello_line(self.name, self.plain_token))
            for line in sys.stdin.buffer:
                connection.sendall(line if line.endswith(b"\n") else line + b"\n")
                if line.strip().lower() == b"quit":
                    break
            else:
                connection.sendall(b"quit\n")
        output.join(LEAVING_S)
        if not output.is_whole:
            raise BrokerLost(self.broker)


class Output(threading.Thread):
    """Writes received bytes to stdout until the connection ends.

    `is_whole` is then true if the last line is the broker's reply to ``quit``.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(name="output", daemon=True)
        self.is_whole = False
        self._connection = connection

    def run(self) -> None:
        """Write received bytes until the connection ends."""
        last = b""
        with suppress(OSError):
            while data := self._connection.recv(READ_BYTES):
                last = (last + data)[-len(LAST_WORD) :]
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        self.is_whole = last == LAST_WORD
