"""A holder: a session that is attached to one subscription, and keeps its events in flight between requests.

Always true: an event is in flight here from when it is taken until a client settles it, its timeout ends, or the holder is
closed. Between two takes, the holder gets no events.
"""

import re
from typing import Final

import anyio

from broker.core.topic.subscription import Consumer
from broker.executor import Limits
from broker.gateways.http.credentials import Visitor
from broker.gateways.http.errand import Errand
from broker.gateways.http.tap import Tap
from broker.server import Server
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.replies import refusal_of

__all__ = ["Ended", "Holder", "offset_of"]

FETCH_S: Final = 5.0
_OFFSET: Final = re.compile(rb'"offset":(\d+)')


class Ended(Exception):
    """The subscription was ended, or the user may no longer use it."""


class Holder(Errand):
    """A session of one user for one subscription."""

    __slots__ = ("_ended", "_events", "_taking", "_tap", "_turn", "busy", "idle_since_s", "name", "topic")

    def __init__(self, server: Server, limits: Limits, visitor: Visitor, peer: str, *, topic: str, name: str) -> None:
        super().__init__(server, limits, visitor.name, visitor.access, peer)
        self.session.outbox = self._tap = Tap()
        self.topic = topic
        self.name = name
        # How many requests use it now
        self.busy = 0
        self.idle_since_s = 0.0
        self._events: list[bytes] = []
        self._ended: str | None = None
        self._turn = anyio.Lock()
        self._taking = anyio.Lock()

    @property
    def held(self) -> int:
        """How many events are in flight here."""
        consumer = self._consumer()
        return 0 if consumer is None else len(consumer.in_flight)

    async def command(self, line: str) -> bytes:
        """Execute a line that has one reply, and return the reply. Raises Refusal, Gone and Ended."""
        async with self._turn:
            reply = await self.ask(line.encode())
        if not reply:
            # The session ended before the line was executed.
            raise Ended(self._ended or "")
        if reply.startswith(b"-"):
            raise refusal_of(reply.rstrip())
        return reply

    async def attach(self, prefetch: int, options: str) -> None:
        """Attach to the subscription, or change the prefetch. Raises Refusal."""
        await self.command(f"sub {self.topic} as={self.name} prefetch={prefetch}{options}")

    async def take(self, most: int, wait_s: float, options: str) -> list[bytes]:
        """Take up to `most` further events. Wait up to `wait_s` seconds for the first one. Raises Refusal, Gone and Ended."""
        deadline = anyio.current_time() + wait_s
        try:
            self._taking.acquire_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(wait_s) as waiting:
                await self._taking.acquire()
            if waiting.cancelled_caught:
                return []
        try:
            await self.attach(self.held + most, options)
            return await self.next_events(deadline - anyio.current_time())
        finally:
            self._taking.release()

    async def next_events(self, wait_s: float) -> list[bytes]:
        """Wait up to `wait_s` seconds for events, and return them. Raises Gone and Ended."""
        deadline = anyio.current_time() + wait_s
        self._tap.open()
        try:
            self._begin_timeouts()
            while not self._take_events():
                left_s = deadline - anyio.current_time()
                # Events that are being read from the disk are in flight here already.
                with anyio.move_on_after(FETCH_S if self._is_fetching else left_s) as waiting:
                    await self._output()
                if waiting.cancelled_caught:
                    break
        finally:
            self._tap.close()
        with anyio.move_on_after(FETCH_S):
            while self._is_fetching:
                await self._drained()
        self._take()
        events, self._events = self._events, []
        consumer = self._consumer()
        # The timeout of an event may have ended while a request waited that has broken off.
        return [] if consumer is None else [line for line in events if offset_of(line) in consumer.in_flight]

    def _take_events(self) -> bool:
        """Take the output. Returns whether there are events. Raises Ended."""
        self._take()
        if self._ended is not None:
            raise Ended(self._ended)
        return bool(self._events)

    @property
    def _is_fetching(self) -> bool:
        consumer = self._consumer()
        return consumer is not None and consumer.fetching

    def _take(self) -> bool:
        output = self.session.take_output()
        if not output:
            return False
        for line in output.splitlines(keepends=True):
            if line.startswith(b"{"):
                self._events.append(line)
            elif line.startswith(b"!ended "):
                self._ended = line.decode().split(" ", 3)[3].strip()
            elif not line.startswith(b"!"):
                self._pieces.append(line)
        self._begin_timeouts()
        return True

    def _begin_timeouts(self) -> None:
        self._runner.broker.sent(self.session, self._runner.now_ms())
        self._runner.do_work()

    def _consumer(self) -> Consumer | None:
        return self.session.consumer_of(self.topic, self.name)


def offset_of(line: bytes) -> int:
    """Return the offset in the line of an event."""
    found = _OFFSET.search(line)
    if found is None:
        raise Refusal("internal", "a delivered line has no offset")
    return int(found[1])
