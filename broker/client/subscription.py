"""A subscription as the async client has it: events as they arrive, in lists, and what is said of them."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec

from broker.client.commands import AckCommand
from broker.errors import BrokerError
from broker.events import StoredEvent
from broker.protocol import replies

if TYPE_CHECKING:
    from broker.client.link import Link

__all__ = ["Start", "Subscription"]

Start = int | str
"""Where a new one begins: ``latest``, ``earliest``, an offset or a time (ISO 8601)."""


class Subscription:
    """What a topic delivers to this client; iterate over it for lists of events, and `ack` them.

    `known_as` is the name that the broker has for it, `stale` counts acks that came too late.
    """

    def __init__(self, link: "Link", topic: str, name: str | None, start: Start, options: str) -> None:
        self.topic = topic
        self.name = name
        self.stale = 0
        self.known_as = ""
        self._link = link
        self._options = options
        self._start = start
        self._next = -1
        self._events: list[StoredEvent] = []
        self._has_events = anyio.Event()
        self._has_ended = False
        self._error: BrokerError | None = None

    @property
    def as_option(self) -> str:
        """The name as a command's option."""
        return "" if self.name is None else f" as={self.name}"

    def line(self) -> bytes:
        """The command that makes it."""
        return f"sub {self.topic}{self.as_option} from={self._start} {self._options}\n".encode()

    def resume_line(self) -> bytes:
        """The command that goes on with it on a new connection.

        What has not been acked comes again to a durable one; one that ended with its connection begins behind the
        newest event it saw.
        """
        self._events = []
        start = self._start if self.name is not None or self._next < 0 else self._next
        return f"sub {self.topic}{self.as_option} from={start} {self._options}\n".encode()

    def deliver(self, events: list[StoredEvent]) -> None:
        """The client's: events have come."""
        self._events += events
        self._next = max(self._next, events[-1].offset + 1)
        self._has_events.set()

    def begin(self, known_as: str) -> None:
        """The client's: the broker has made it, or goes on with it on a new connection."""
        self.known_as = known_as

    def end(self, error: BrokerError | None = None) -> None:
        """The client's: it was unsubscribed, or the broker refuses to go on with it."""
        self._has_ended, self._error = True, error
        self._has_events.set()

    def __aiter__(self) -> AsyncIterator[list[StoredEvent]]:
        return self

    async def __anext__(self) -> list[StoredEvent]:
        """Return what has arrived and was not yet returned; at least one event. Raises BrokerError if it cannot go on."""
        while not self._events:
            if self._has_ended:
                raise self._error or StopAsyncIteration
            self._has_events = anyio.Event()
            await self._has_events.wait()
        batch, self._events = self._events, []
        return batch

    async def ack(self, events: Sequence[StoredEvent]) -> None:
        """Settle events. Returns when the acks are queued; one that comes too late is counted in `stale`."""
        for line in replies.ack_lines(self.topic, [event.offset for event in events]):
            self._send(line)
        await self._link.wait_for_room()

    async def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """Give an event back, with the reason, which the broker keeps. Returns when the nack is queued."""
        words = {"message": message, "code": code, "trace": trace}
        error = msgspec.json.encode({name: word for name, word in words.items() if word is not None})
        self._send(b"nack %b @%d %b\n" % (self.topic.encode(), event.offset, error))
        await self._link.wait_for_room()

    async def extend(self, events: Sequence[StoredEvent]) -> None:
        """Start the ack timers of events anew. Raises Refusal ``stale`` if none of them is in flight here any more."""
        refs = " ".join(f"@{event.offset}" for event in events)
        await self._link.ask(f"extend {self.topic} {refs}\n".encode())

    def _send(self, line: bytes) -> None:
        # Nobody waits for the reply. What was in flight is given again on a new connection, so there it would be stale.
        if self._link.is_connected:
            self._link.send(AckCommand(line, self))
