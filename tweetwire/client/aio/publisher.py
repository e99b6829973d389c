"""Pipelined publishing to one topic: many events are unconfirmed at once, and confirmations come in order."""

from collections.abc import Callable, Iterable
from typing import Final, Self

import anyio
from anyio import lowlevel

from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.engine import PublishWindow
from tweetwire.client.logging import client_logger
from tweetwire.protocol.events import Event
from tweetwire.protocol.replies import Receipt

__all__ = ["OnConfirm", "Publisher"]

YIELD_EVERY: Final = 256

OnConfirm = Callable[[Receipt], None]

logger = client_logger(__name__)


class Publisher(PublishWindow):
    """Publishes to one topic in order, without waiting for each confirmation. Make one with `Client.publisher`.

    The end of the ``async with`` block waits until all events are confirmed. If an exception leaves the block, it waits
    for none. Then the broker may or may not have stored the unconfirmed events. Their number is logged, is added to the
    exception as a note, and stays in `unconfirmed`.

    After it has refused an event with a `sequence`, the broker also refuses the later events of that producer. This
    ends when the event is published again or given up with `Client.skip`. If the connection is lost meanwhile, the
    client refuses the later events without an answer itself, instead of sending them again.

    Events with a `producer` and a `sequence` are stored exactly once. `qos` 2 does this for other events, and costs each
    batch two syncs of the disk on both sides.

    Attributes:
        topic: The topic.
        window: Largest number of unconfirmed events.
        unconfirmed: Number of events that are neither confirmed nor refused.
    """

    fate = "the broker may or may not store them"
    """Says whether unconfirmed events will be stored if an error leaves the block; part of the note of the exception."""

    def __init__(
        self, link: AsyncLink, topic: str, window: int, on_confirm: OnConfirm | None, options: str = ""
    ) -> None:
        super().__init__(topic, options)
        self.window = window
        self._link = link
        self._on_confirm = on_confirm
        self._has_changed = anyio.Event()
        self._since_yield = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: type[BaseException] | None, error: BaseException | None, *__: object) -> None:
        if error is not None:
            self._report(error)
            return
        try:
            await self.flush()
        except BaseException as failure:
            self._report(failure)
            raise

    async def publish(self, event: Event) -> None:
        """Send an event as soon as the window has room. Returns without waiting for its confirmation.

        Raises:
            Refusal: An earlier event was refused. Each refusal is raised once.
            ValueError: The event cannot be written as JSON.
            BrokerError: No more confirmations will come, such as ClientClosed.
        """
        await self._wait_while(self.window)
        self._give([event])
        self._since_yield += 1
        if self._since_yield >= YIELD_EVERY:
            self._since_yield = 0
            await lowlevel.checkpoint()

    async def publish_many(self, events: Iterable[Event]) -> None:
        """Send events in order, in chunks, when the window has room. Raises the errors of `publish`."""
        chunk: list[Event] = []
        for event in events:
            chunk.append(event)
            if len(chunk) == YIELD_EVERY:
                await self._give_when_room(chunk)
                chunk = []
        if chunk:
            await self._give_when_room(chunk)

    async def flush(self) -> None:
        """Wait until all events are confirmed. Raises Refusal if an event was refused, and the other errors of `publish`."""
        await self._wait_while(1)

    def _confirmed(self, receipt: Receipt) -> None:
        if self._on_confirm is not None:
            self._on_confirm(receipt)

    def _changed(self) -> None:
        self._has_changed.set()

    def _report(self, error: BaseException) -> None:
        """Log the number of unconfirmed events, and add it to the error that leaves the block."""
        if self.unconfirmed:
            error.add_note(f"{self.unconfirmed} events to topic {self.topic} are unconfirmed; {self.fate}")
            logger.warning(
                "a publisher was left with unconfirmed events", topic=self.topic, unconfirmed=self.unconfirmed
            )

    async def _give_when_room(self, events: list[Event]) -> None:
        await self._wait_while(max(1, self.window - len(events)))
        self._give(events)
        await lowlevel.checkpoint()

    def _give(self, events: list[Event]) -> None:
        self._link.send_publishes(self, self._given_lines(events))

    async def _wait_while(self, limit: int) -> None:
        """Wait until fewer than `limit` events are unconfirmed. Raises the refusal or failure of an earlier event."""
        while self.unconfirmed >= limit and self._refusal is None and self._failure is None:
            self._link.owner.check()
            # Several tasks may wait for this anyio.Event, so it is replaced only after it was set.
            if self._has_changed.is_set():
                self._has_changed = anyio.Event()
            await self._has_changed.wait()
        if self._refusal is not None or self._failure is not None:
            self._raise_failure()
