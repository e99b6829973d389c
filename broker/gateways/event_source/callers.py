"""The connections to the event source's port, the callers: one is the source, the others wait.

One caller at a time has the turn, that is, serves as the source. Always true:

- the next turn goes to the first waiting caller that has sent bytes, or else to the first waiting caller;
- the source loses its turn when it is silent for `silence_s` seconds while a caller that has sent bytes waits. It is
  disconnected as if it were lost, so the next source continues the sequences;
- a caller that speaks another protocol, or leaves without sending bytes, never becomes the source;
- at most `WAITING_MAX` callers wait. To make room for a new one, the first silent caller is disconnected.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import anyio
import structlog
from anyio.abc import SocketStream

from broker.strangers_log import strangers_log
from tweetwire.protocol import GREETING_LIMIT, is_foreign_protocol

__all__ = ["Caller", "Callers"]

WAITING_MAX: Final = 10
READ_BYTES: Final = 4096
LOOK_EVERY_S: Final = 0.25

T = TypeVar("T")

logger = structlog.stdlib.get_logger()


class Caller:
    """One connection to the source's port. The caller that has the turn is read and written by `receive` and `send`."""

    def __init__(self, callers: "Callers", stream: SocketStream) -> None:
        self.scope = anyio.CancelScope()
        self.has_turn = anyio.Event()
        self._callers = callers
        self._stream = stream
        self._has_spoken = anyio.Event()
        self._first = b""

    @property
    def has_spoken(self) -> bool:
        """Whether the caller has sent bytes that a source may send."""
        return self._has_spoken.is_set()

    async def listen(self) -> None:
        """Wait for the first bytes and keep them. Ends the connection if they are not from a source."""
        # `receive` meets the same error again, after it has returned the bytes that arrived before.
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            while len(self._first) < GREETING_LIMIT and b"\n" not in self._first:
                self._first += await self._stream.receive(READ_BYTES)
        if is_foreign_protocol(self._first):
            strangers_log.warning("closed a connection to the event source's port that speaks another protocol")
            self.scope.cancel()
        elif not self._first:
            self.scope.cancel()
        else:
            self._has_spoken.set()
            self._callers.give_turn()

    async def spoken(self) -> None:
        """Wait until the caller has sent bytes. Raises BrokenResourceError if the caller loses its turn."""
        await self._patiently(self._has_spoken.wait)

    async def receive(self, bytes_max: int) -> bytes:
        """Return the next bytes. Raises the errors of a stream, and BrokenResourceError if the caller loses its turn."""
        if self._first:
            data, self._first = self._first[:bytes_max], self._first[bytes_max:]
            return data
        return await self._patiently(lambda: self._stream.receive(bytes_max))

    async def send(self, data: bytes) -> None:
        """Send bytes to the caller. Raises the errors of a stream."""
        await self._stream.send(data)

    async def _patiently(self, wait: Callable[[], Awaitable[T]]) -> T:
        began_at = anyio.current_time()
        while True:
            with anyio.move_on_after(LOOK_EVERY_S):
                return await wait()
            if self._callers.is_wanted and anyio.current_time() - began_at >= self._callers.silence_s:
                logger.warning("an event source was silent while another waited; disconnected")
                raise anyio.BrokenResourceError


class Callers:
    """All connections to the source's port."""

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s
        self._turn: Caller | None = None
        # The waiting callers, in the order of their arrival.
        self._waiting: list[Caller] = []

    @property
    def is_wanted(self) -> bool:
        """Whether a caller that has sent something waits for its turn."""
        return any(caller.has_spoken for caller in self._waiting)

    def enter(self, stream: SocketStream) -> Caller | None:
        """Add a caller, which gets the turn at once if it is free. Returns None if too many wait. Call `leave` at its end."""
        if len(self._waiting) >= WAITING_MAX:
            silent = next((caller for caller in self._waiting if not caller.has_spoken), None)
            if silent is None:
                return None
            self._waiting.remove(silent)
            silent.scope.cancel()
        caller = Caller(self, stream)
        self._waiting.append(caller)
        self.give_turn()
        return caller

    def give_turn(self) -> None:
        """Give the turn to the next caller if no caller has it."""
        if self._turn is None and self._waiting:
            spoken = (caller for caller in self._waiting if caller.has_spoken)
            self._turn = next(spoken, self._waiting[0])
            self._waiting.remove(self._turn)
            self._turn.has_turn.set()

    def leave(self, caller: Caller) -> None:
        """Remove a caller whose connection has ended."""
        if self._turn is caller:
            self._turn = None
        elif caller in self._waiting:
            self._waiting.remove(caller)
        self.give_turn()
