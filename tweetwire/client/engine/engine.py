"""The engine of one client, without a socket and a clock: commands and bytes go in, bytes to send and results come out.

A shell owns the socket and the clock. For each connection, the shell

- calls `begin_connection`;
- sends the bytes that `take_output` returns;
- passes received bytes to `receive`, which ends commands and delivers events to subscriptions;
- calls `end_connection` when the connection is lost, and then connects again.

Always true: without a connection there is no output. Each connection begins with the login, the subscriptions, and then
all unanswered commands.
"""

from collections.abc import Sequence
from typing import TypeVar

from tweetwire.client.engine.commands import Command, GreetingCommand, HelloCommand, Trouble
from tweetwire.client.engine.publishes import PublishWindow
from tweetwire.client.engine.received_lines import ReceivedLines
from tweetwire.client.engine.subscriptions import SubscriptionTable
from tweetwire.client.engine.unanswered import Unanswered
from tweetwire.protocol.errors import BrokerError

__all__ = ["ClientEngine"]

C = TypeVar("C", bound=Command)


class ClientEngine:
    """The commands, subscriptions and publishes of one client, over all its connections.

    Args:
        hello: The line that logs in on each connection.
        line_bytes_max: Longest line from the broker, in bytes. A longer one is a ProtocolError.

    Attributes:
        connects: Number of connections so far.
        identity: Identity of the broker's data folder, as the last greeting showed it, or None if it showed none.
        queued_bytes: Number of bytes that wait to be sent.
    """

    def __init__(self, hello: bytes, line_bytes_max: int) -> None:
        self.subscriptions = SubscriptionTable()
        self.connects = 0
        self.identity: str | None = None
        self.is_connected = False
        self.queued_bytes = 0
        self._hello = hello
        self._unanswered = Unanswered(self.subscriptions)
        self.requests = self._unanswered.requests
        self._received = ReceivedLines(line_bytes_max)
        self._output: list[bytes] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a command waits for its reply."""
        return self._unanswered.is_waiting

    @property
    def unanswered(self) -> int:
        """The number of commands that wait for replies. Consecutive publishes of one publisher count once."""
        return len(self._unanswered)

    @property
    def has_output(self) -> bool:
        """Whether bytes wait to be sent."""
        return bool(self._output)

    def begin_connection(self) -> HelloCommand:
        """Begin a new connection: queue the login, the subscriptions, and the commands without a reply.

        Call this before the broker's greeting is received. Returns the command that logs in.
        """
        self._received.clear()
        self._output, self.queued_bytes = [], 0
        self.is_connected = True
        self.connects += 1
        hello = HelloCommand(self._hello)
        first = [GreetingCommand(self._note_identity), hello, *self.subscriptions.resume_commands()]
        for line in self._unanswered.begin_again(first):
            self._put(line)
        return hello

    def end_connection(self) -> None:
        """Note that the connection is lost. Queued bytes are dropped; commands without a reply wait for the next connection."""
        self.is_connected = False
        self._output, self.queued_bytes = [], 0
        self._unanswered.end_connection()

    def send(self, command: C) -> C:
        """Send a command. If the connection is lost before its reply, it is sent again on the next one."""
        self._unanswered.add(command)
        self._put(command.line)
        return command

    def post(self, command: C) -> C:
        """Send a command that is useful only on this connection. Without a connection it is done immediately."""
        if self.is_connected:
            self.send(command)
        else:
            command.drop()
        return command

    def send_publishes(self, window: PublishWindow, lines: Sequence[bytes]) -> None:
        """Send whole ``pub`` lines, one after the other. `window` receives their confirmations."""
        self._unanswered.add_publishes(window, lines)
        if self.is_connected:
            # The same as `_put`, inlined because it runs for each event.
            data = b"".join(lines)
            self._output.append(data)
            self.queued_bytes += len(data)

    def take_output(self) -> bytes:
        """Return the queued bytes, which the caller must send, and clear the queue."""
        data = b"".join(self._output)
        self._output.clear()
        self.queued_bytes = 0
        return data

    def receive(self, data: bytes) -> list[Trouble]:
        """Take bytes from the broker. Returns the troubles to log.

        Each of these errors ends the connection.

        Raises:
            ProtocolError: The peer is not a broker.
            Dismissed: The broker ends this connection; a later one may succeed.
            LoginPostponed: The broker refuses the login for now.
        """
        lines = self._received.feed(data)
        troubles = self._unanswered.take(lines) if lines else []
        self._received.check_length()
        return troubles

    def drop_commands(self, error: BrokerError) -> None:
        """End all commands with `error`. None of them is sent again."""
        self._unanswered.fail(error)

    def fail(self, error: BrokerError) -> None:
        """End all commands and all subscriptions with `error`."""
        # This comes before `end_connection`, which ends some commands with another error.
        self._unanswered.fail(error)
        self.end_connection()
        self.subscriptions.fail(error)

    def _note_identity(self, identity: str | None) -> None:
        self.identity = identity

    def _put(self, data: bytes) -> None:
        if self.is_connected and data:
            self._output.append(data)
            self.queued_bytes += len(data)
