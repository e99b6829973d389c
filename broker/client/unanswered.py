"""Whose turn it is: the commands that still wait for their replies, and what the lines of the broker mean to them.

Always true: `_commands` holds, in order, every command whose reply is still to come, since replies keep the order of the
commands; after a lost connection all of them are sent again, as far as they have anything to send. No I/O here.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from broker.client.commands import Command, PublishCommand, PublishRun
from broker.client.publisher import Publisher
from broker.events import StoredEvent, decode_stored
from broker.protocol import replies
from broker.protocol.replies import Receipt

__all__ = ["Unanswered"]


class Unanswered:
    """The commands of one client, over all its connections."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._read: tuple[bytes, int, list[bytes]] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a reply is still to come."""
        return bool(self._commands)

    def add(self, command: Command) -> None:
        """A command is sent behind all others."""
        self._commands.append(command)

    def add_publishes(self, publisher: Publisher, lines: Sequence[bytes]) -> None:
        """Publishes of a publisher are sent; those behind each other are one command."""
        run = self._commands[-1] if self._commands else None
        if not isinstance(run, PublishRun) or run.publisher is not publisher:
            run = PublishRun(publisher)
            self._commands.append(run)
        run.unconfirmed.extend(lines)

    def begin_again(self, first: Sequence[Command]) -> list[bytes]:
        """A new connection begins with the commands `first`; returns all that is to be sent on it."""
        again = [command for command in self._commands if command.resend()]
        said = [command.line for command in first] + [command.resend() for command in again]
        self._commands = deque([*first, *again])
        self._read = None
        return [line for line in said if line]

    def take(self, lines: Iterable[bytes]) -> list[StoredEvent]:
        """Give replies to their commands, and return the events between them."""
        events: list[StoredEvent] = []
        for line in lines:
            if self._read is not None:
                self._take_read(line)
            elif line.startswith(b"{"):
                events.append(decode_stored(line))
            elif line.startswith((b"+OK pub ", b"+OK dup ")):
                self._confirm(replies.receipt(line))
            elif line.startswith(b"-"):
                self._done(self._commands[0].refuse(replies.refusal_of(line)))
            elif line.startswith(b"+OK read "):
                self._read = (line, replies.read_head(line)[0], [])
                self._finish_read()
            else:
                self._done(self._commands[0].answer(line, []))
        return events

    def _confirm(self, receipt: Receipt | None) -> None:
        """Give a confirmation, which may stand for many publishes, to those that wait for it, in their order."""
        while receipt is not None:
            command = self._commands[0]
            assert isinstance(command, PublishCommand | PublishRun)  # noqa: S101 — replies keep the commands' order
            receipt, is_done = command.confirm(receipt)
            self._done(is_done)

    def _take_read(self, line: bytes) -> None:
        assert self._read is not None  # noqa: S101 — the caller asked
        self._read[2].append(line)
        self._finish_read()

    def _finish_read(self) -> None:
        if self._read is not None and len(self._read[2]) == self._read[1]:
            head, _, lines = self._read
            self._read = None
            self._done(self._commands[0].answer(head, lines))

    def _done(self, is_done: bool) -> None:
        if is_done:
            self._commands.popleft()
