"""Execute the lines of one session in turns, so that no session stops the others.

A connection and a gateway's session without a socket are executors. Always true:

- after commands have taken `TURN_S`, other tasks have their turn;
- no further command is executed while more bytes of output wait than the limit allows;
- the work that the core leaves is done after each turn.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, NamedTuple

from anyio.lowlevel import checkpoint

from broker.core import Session
from broker.login import ConnectionLogin
from broker.work_runner import WorkRunner
from tweetwire.protocol import Command, parse_lines
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs.publishing import Publish
from tweetwire.protocol.verbs.session import Hello

__all__ = ["Executor", "Limits"]

TURN_S: Final = 0.005
SLICE_LINES: Final = 2_000
"""How many lines are parsed in one step. If all are refused, a step takes about 5 ms and 1 MiB.

Lines of 130 bytes that arrive in one read fit into one slice, so that a run of publishes stays one command.
"""


class Limits(NamedTuple):
    """The limits of one client: the longest line, the bytes that may wait to be sent, and the seconds without reading."""

    line_bytes: int
    waiting_bytes: int
    stalled_s: float


class Executor(ABC):
    """Executes the lines of `session`. A subclass takes the output, and says when there is room again."""

    __slots__ = ("_limits", "_runner", "session")

    def __init__(self, runner: WorkRunner, session: Session, limits: Limits) -> None:
        self.session = session
        self._runner = runner
        self._limits = limits

    @abstractmethod
    async def _drained(self) -> None:
        """Wait until output was taken, or until there is output to take."""

    async def _execute_lines(self, lines: list[bytes], size: int, login: ConnectionLogin | None) -> None:
        """Execute lines that arrived in `size` bytes. Without a `login`, the session has its access already."""
        broker, session, bytes_max = self._runner.broker, self.session, self._limits.waiting_bytes
        outbox = session.outbox
        now_ms, turn_ends = self._runner.now_ms(), time.monotonic() + TURN_S
        try:
            for command in self._commands(lines):
                if outbox.size + outbox.held > bytes_max or time.monotonic() > turn_ends:
                    await self._give_way()
                    now_ms, turn_ends = self._runner.now_ms(), time.monotonic() + TURN_S
                if command is None:
                    continue
                if login is not None and not login.is_known:
                    login.note_command()
                if isinstance(command, Refusal):
                    broker.refuse(session, command, now_ms)
                elif (
                    login is not None
                    and isinstance(command, Hello)
                    and (refusal := await login.log_in(command, size)) is not None
                ):
                    broker.refuse(session, refusal, now_ms)
                else:
                    broker.execute(session, command, now_ms)
                if session.jobs:
                    await self._give_way()
                if session.is_leaving:
                    break
        finally:
            self._runner.do_work()

    def _commands(self, lines: list[bytes]) -> Iterator[Command | Refusal | None]:
        """Yield the commands in the lines. A long run of publishes is yielded in parts, since checking it takes time.

        The lines are parsed slice by slice. None is yielded before each further slice, so that the caller can give way and
        wait for room for replies even if a slice holds no command.
        """
        for start in range(0, len(lines), SLICE_LINES):
            if start:
                yield None
            for command in parse_lines(lines[start : start + SLICE_LINES], self._limits.line_bytes):
                if isinstance(command, Publish):
                    yield from self._runner.broker.shares(command)
                else:
                    yield command

    async def _give_way(self) -> None:
        """Do the work that the core left in `work`, let other tasks run, and wait until there is room for a reply."""
        self._runner.do_work()
        await checkpoint()
        while self.session.jobs or self.session.outbox.load > self._limits.waiting_bytes:
            await self._drained()
