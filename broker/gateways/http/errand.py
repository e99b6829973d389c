"""An errand: commands that the gateway executes for a client, on a session without a socket.

Always true: the commands pass the same parser, permissions and limits as those of a connection, and `ask` returns the
replies in the order of the lines.
"""

import anyio

from broker.core import Access
from broker.executor import Executor, Limits
from broker.server import Server

__all__ = ["Errand", "Gone"]


class Gone(Exception):
    """The client has disconnected, its user was removed, or the gateway ends. No client waits for an answer."""


class Errand(Executor):
    """A session without a socket. Call `close` at its end."""

    __slots__ = ("_has_output", "_pieces", "_server")

    def __init__(self, server: Server, limits: Limits, name: str, access: Access, peer: str) -> None:
        self._server = server
        self._has_output: anyio.Event | None = None
        self._pieces: list[bytes] = []
        super().__init__(server.runner, server.admit(name, self.wake, access, peer=peer), limits)

    def wake(self) -> None:
        """Note that the session has output, or that it is leaving."""
        has_output, self._has_output = self._has_output, None
        if has_output is not None:
            has_output.set()

    def leave(self) -> None:
        """Let the task that waits raise `Gone`."""
        self.session.is_leaving = True
        self.wake()

    def close(self) -> None:
        """End the session."""
        self._server.dismiss(self.session)

    async def ask(self, *lines: bytes) -> bytes:
        """Execute lines, and return their replies once all are there. Raises Gone."""
        await self._execute_lines(list(lines), 0, None)
        while self.session.outbox.is_waiting or self.session.jobs:
            await self._drained()
        self._take()
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _drained(self) -> None:
        if not self._take():
            await self._output()

    async def _output(self) -> None:
        """Wait until the session is woken. Raises Gone."""
        if self.session.is_leaving:
            raise Gone
        # Several tasks may wait for the same output.
        has_output = self._has_output
        if has_output is None:
            has_output = self._has_output = anyio.Event()
        await has_output.wait()

    def _take(self) -> bool:
        """Take the output that is there. Returns whether there was some."""
        output = self.session.take_output()
        if output:
            self._pieces.append(output)
        return bool(output)
