"""A subscription of the async client: lists of events as they arrive, and their acks and nacks."""

from collections.abc import AsyncIterator, Callable, Sequence

import anyio

from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.engine import SubscriptionState
from tweetwire.client.engine.commands import AckCommand
from tweetwire.protocol import requests
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.replies import NOT_IN_FLIGHT
from tweetwire.protocol.request_words import REFS_PER_LINE
from tweetwire.protocol.requests import Start, SubscribeRequest

__all__ = ["Start", "Subscription"]


class Subscription(SubscriptionState):
    """A subscription to a topic. Iterate over it with ``async for`` to get lists of events, and `ack` them.

    Make one with `Client.subscribe`.

    Attributes:
        topic: The topic or the pattern.
        is_pattern: Whether `topic` is a pattern. Then each event names its topic.
        name: Name of a durable subscription, else None.
        known_as: The broker's name for the subscription.
        stale: Number of events that were acked, nacked or begun too late: they were no longer in flight here.
        refused: Number of events whose ack, nack or begin the broker refused for another reason. The reason is logged,
            and the events are delivered again.
    """

    def __init__(self, link: AsyncLink, request: SubscribeRequest, start: Start) -> None:
        super().__init__(request, start)
        self._link = link
        self._has_events = anyio.Event()

    async def prepare(self) -> None:
        """Prepare the subscription before its command is sent. Called by the client."""

    async def finish(self) -> None:
        """Wait until nothing is left to send to the broker. Called by the client when its block ends."""

    def __aiter__(self) -> AsyncIterator[list[StoredEvent]]:
        return self

    async def __anext__(self) -> list[StoredEvent]:
        """Return the events that have arrived since the last call, at least one. Waits if there is none.

        Raises:
            StopAsyncIteration: This client has left the subscription.
            SubscriptionEnded: Another client has ended the subscription.
            Refusal: The broker refuses to continue the subscription after a lost connection.
            ProtocolError: The server does not follow the protocol.
            ClientClosed: The client was left.
        """
        while not self._events:
            if self._has_ended:
                raise self._error or StopAsyncIteration
            self._link.owner.check()
            # Several tasks may wait for this anyio.Event, so it is replaced only after it was set.
            if self._has_events.is_set():
                self._has_events = anyio.Event()
            await self._has_events.wait()
        return self._take_events()

    async def ack(self, events: Sequence[StoredEvent]) -> None:
        """Ack events, which settles them.

        Returns once the acks are queued, without waiting for the broker. An event that is no longer in flight here is
        counted in `stale`. An ack that is lost with its connection is not sent again: the event is delivered again.

        Args:
            events: Events of this subscription.

        Raises:
            ClientClosed: The client was left.
        """
        self._send_refs(requests.ack_lines, events)
        await self._link.wait_for_room()

    async def mark_begun(self, events: Sequence[StoredEvent]) -> None:
        """Note that this client begins to work on events, for a subscription made with `begins`.

        Returns once the command has been handed to the operating system, or the connection is lost. So the command reaches
        the broker even if this process dies. An event that is no longer in flight here is counted in `stale`.

        Args:
            events: Events of this subscription.
        """
        self._send_refs(requests.begin_lines, events)
        await self._link.wait_until_sent()

    async def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """Nack an event, so that it is delivered again or becomes a dead letter.

        Returns once the nack is queued, without waiting for the broker. The broker keeps at most 16 KiB of the reason.

        Args:
            event: An event of this subscription.
            message: Why the event failed. If it is too long, only its beginning is sent.
            code: An error code of the application.
            trace: A traceback. If it is too long, only its end is sent.
        """
        self._send(requests.nack_line(event.topic, event.offset, message, code, trace), 1)
        await self._link.wait_for_room()

    async def extend(self, events: Sequence[StoredEvent]) -> None:
        """Restart the ack timers of events.

        Args:
            events: Events of this subscription.

        Raises:
            Refusal: With the code ``stale`` if none of the events is in flight here any more.
        """
        stale: Refusal | None = None
        is_extended = not events
        for topic, offsets in self._by_topic(events) if events else ():
            try:
                await self._link.ask(requests.extend_line(topic, offsets))
                is_extended = True
            except Refusal as refusal:
                if refusal.code not in NOT_IN_FLIGHT:
                    raise
                stale = refusal
        if stale is not None and not is_extended:
            raise stale

    def _changed(self) -> None:
        self._has_events.set()

    def _send_refs(self, lines_of: Callable[[str, Sequence[int]], list[bytes]], events: Sequence[StoredEvent]) -> None:
        for topic, offsets in self._by_topic(events):
            for number, line in enumerate(lines_of(topic, offsets)):
                self._send(line, min(REFS_PER_LINE, len(offsets) - number * REFS_PER_LINE))

    def _send(self, line: bytes, count: int) -> None:
        # No task waits for the reply. On a new connection the ack would be stale, because events in flight are delivered again.
        self._link.post(AckCommand(line, self, count))
