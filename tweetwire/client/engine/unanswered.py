"""The commands that wait for replies, and the assignment of received lines to them.

Always true: `_commands` holds every command that waits for its reply, in order, because replies come in the order of the
commands. After a lost connection they are sent again, except those that end with their connection.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from tweetwire.client.engine.commands import Command, ReadCommand, Trouble
from tweetwire.client.engine.publishes import PublishCommand, PublishRun, PublishWindow
from tweetwire.client.engine.requests import RequestTable
from tweetwire.client.engine.subscriptions import SubscriptionTable
from tweetwire.protocol import replies
from tweetwire.protocol.errors import BrokerError, ProtocolError, Refusal
from tweetwire.protocol.notices import NOTICE, read_replied
from tweetwire.protocol.replies import Receipt

__all__ = ["Dismissed", "Unanswered"]


class Dismissed(Exception):
    """The broker ends this connection: it sent a refusal while no command waited for a reply."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Unanswered:
    """The unanswered commands of one client, over all its connections.

    Events and notices go to `subscriptions`, in an order that never gives an event to the wrong subscription.
    """

    def __init__(self, subscriptions: SubscriptionTable) -> None:
        self.requests = RequestTable()
        self._commands: deque[Command] = deque()
        self._subscriptions = subscriptions
        self._read: ReadCommand | None = None
        self._arrived: list[bytes] = []
        self._troubles: list[Trouble] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a command waits for its reply."""
        return bool(self._commands)

    def __len__(self) -> int:
        """Return the number of commands that wait for replies. Consecutive publishes of one publisher count once."""
        return len(self._commands)

    def add(self, command: Command) -> None:
        """Add a command that is sent after all others."""
        self._commands.append(command)

    def add_publishes(self, window: PublishWindow, lines: Sequence[bytes]) -> None:
        """Add publishes of a publisher after all other commands. Consecutive publishes of one publisher are one command."""
        run = self._commands[-1] if self._commands else None
        if not isinstance(run, PublishRun) or run.window is not window:
            run = PublishRun(window)
            self._commands.append(run)
        run.unconfirmed.extend(lines)

    def begin_again(self, first: Sequence[Command]) -> list[bytes]:
        """Begin a new connection with the commands `first`. Returns all lines to send on it."""
        # A run of publishes has nothing to send if all of them were refused because of an earlier refusal.
        again = [(command, line) for command in self._commands if (line := command.resend())]
        self._commands = deque([*first, *(command for command, _ in again)])
        return [line for line in (*(command.line for command in first), *(line for _, line in again)) if line]

    def end_connection(self) -> None:
        """Note that the connection is lost, and drop the commands that are useless on another one."""
        passing = [command for command in self._commands if command.is_passing]
        self._commands = deque(command for command in self._commands if not command.is_passing)
        self._read, self._arrived = None, []
        for command in passing:
            command.drop()
        self.requests.end_connection()

    def fail(self, error: BrokerError) -> None:
        """End all commands with `error`, because no replies will come."""
        commands, self._commands = self._commands, deque()
        self._read, self._arrived = None, []
        for command in commands:
            command.fail(error)
        self.requests.fail(error)

    def take(self, lines: Iterable[bytes]) -> list[Trouble]:
        """Give replies to their commands, and deliver the events between them. Returns the troubles to log.

        Raises ProtocolError for a line that no broker sends, Dismissed if the broker ends the connection, and
        LoginPostponed.
        """
        for line in lines:
            if self._read is not None:
                self._take_read(self._read, line)
            elif line.startswith(b"{"):
                self._arrived.append(line)
            elif line.startswith((b"+OK pub ", b"+OK dup ")):
                self._confirm(line, replies.receipt(line))
            elif line.startswith(NOTICE):
                self._deliver()
                self._note(line)
            else:
                self._answer(line)
        self._deliver()
        troubles, self._troubles = self._troubles, []
        return troubles

    def _deliver(self) -> None:
        """Deliver the events received so far, before a line that changes which subscription events belong to."""
        if self._arrived:
            lines, self._arrived = self._arrived, []
            self._subscriptions.deliver(replies.events(lines))

    def _note(self, line: bytes) -> None:
        replied = read_replied(line)
        if replied is None:
            self._subscriptions.note(line)
        else:
            self.requests.note(replied)

    def _confirm(self, line: bytes, receipt: Receipt) -> None:
        """Give a confirmation to the publishes that wait for it, in order. It may confirm many publishes."""
        waiting = receipt.count
        for command in self._commands:
            if waiting <= 0 or not isinstance(command, PublishCommand | PublishRun) or command.topic != receipt.topic:
                break
            waiting -= command.count
        if waiting > 0:
            raise ProtocolError("it confirms events that were not published", line)
        left: Receipt | None = receipt
        while left is not None:
            command = self._commands[0]
            assert isinstance(command, PublishCommand | PublishRun)  # noqa: S101 — counted above
            left, is_done = command.confirm(left)
            self._done(is_done)

    def _answer(self, line: bytes) -> None:
        command = self._commands[0] if self._commands else None
        if line.startswith(b"-"):
            self._refuse(command, replies.refusal_of(line))
            return
        if command is None or not command.fits(line):
            raise ProtocolError("it does not fit the oldest command without a reply", line)
        if command.turns:
            self._deliver()
        is_done = command.answer(line)
        if isinstance(command, ReadCommand) and not is_done:
            self._read = command
        self._done(is_done)

    def _refuse(self, command: Command | None, refusal: Refusal) -> None:
        if command is None:
            raise Dismissed(refusal)
        self._done(command.refuse(refusal))
        if command.trouble is not None:
            self._troubles.append(command.trouble)

    def _take_read(self, command: ReadCommand, line: bytes) -> None:
        if command.take(line):
            self._read = None
            self._done(is_done=True)

    def _done(self, is_done: bool) -> None:
        if is_done:
            self._commands.popleft()
