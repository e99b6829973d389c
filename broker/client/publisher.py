"""Pipelined publishing to one topic: many events on their way, their confirmations in order.

Always true: `unconfirmed` is what was given to the connection and has neither a confirmation nor a refusal.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Self

import anyio
from anyio import lowlevel

from broker.errors import Refusal
from broker.events import Event, encode_event
from broker.protocol.replies import Receipt

if TYPE_CHECKING:
    from broker.client.link import Link

__all__ = ["OnConfirm", "Publisher"]

YIELD_EVERY: Final = 256

OnConfirm = Callable[[Receipt], None]


class Publisher:
    """Publishes to one topic in order without waiting for each confirmation; leaving its block waits for all.

    It has no `qos` 2, which would cost each event two steps of the disk on both sides: events with a `producer` and a
    `sequence` are stored once without that, and `Client.publish` with `qos` 2 may be called by many tasks at once.
    """

    def __init__(self, link: "Link", topic: str, window: int, on_confirm: OnConfirm | None) -> None:
        self.topic = topic
        self.window = window
        self.unconfirmed = 0
        self._link = link
        self._prefix = f"pub {topic} ".encode()
        self._on_confirm = on_confirm
        self._refusal: Refusal | None = None
        self._has_changed = anyio.Event()
        self._since_yield = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            await self.flush()

    async def publish(self, event: Event) -> None:
        """Send an event, once there is room in the window. Raises Refusal if an event before it was refused."""
        await self._wait_while(self.window)
        self._give([event])
        self._since_yield += 1
        if self._since_yield >= YIELD_EVERY:
            self._since_yield = 0
            await lowlevel.checkpoint()

    async def publish_many(self, events: Iterable[Event]) -> None:
        """Send events in order, as many at a time as the window has room for. Raises Refusal as `publish` does."""
        chunk: list[Event] = []
        for event in events:
            chunk.append(event)
            if len(chunk) == YIELD_EVERY:
                await self._give_when_room(chunk)
                chunk = []
        if chunk:
            await self._give_when_room(chunk)

    async def flush(self) -> None:
        """Wait until everything given is confirmed. Raises Refusal if an event was refused."""
        await self._wait_while(1)

    def confirm(self, receipt: Receipt) -> None:
        """The client's: a confirmation has come."""
        self.unconfirmed -= receipt.count
        if self._on_confirm is not None:
            self._on_confirm(receipt)
        self._has_changed.set()

    def refuse(self, refusal: Refusal) -> None:
        """The client's: an event was refused."""
        self.unconfirmed -= 1
        self._refusal = self._refusal or refusal
        self._has_changed.set()

    async def _give_when_room(self, events: list[Event]) -> None:
        await self._wait_while(max(1, self.window - len(events)))
        self._give(events)
        await lowlevel.checkpoint()

    def _give(self, events: list[Event]) -> None:
        prefix = self._prefix
        self.unconfirmed += len(events)
        self._link.send_publishes(self, [b"%b%b\n" % (prefix, encode_event(event)) for event in events])

    async def _wait_while(self, limit: int) -> None:
        """Wait until fewer than `limit` events are unconfirmed."""
        while self.unconfirmed >= limit and self._refusal is None:
            self._has_changed = anyio.Event()
            await self._has_changed.wait()
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
