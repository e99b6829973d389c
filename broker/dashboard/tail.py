"""The last events of a topic, read once however many look at them."""

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from broker.events import StoredEvent
from broker.protocol.replies import Page

__all__ = ["Tail"]

Read = Callable[[int, int], Awaitable[Page]]


class Tail:
    """Keeps up to `count` events; each is read once."""

    def __init__(self, count: int) -> None:
        self._events: deque[StoredEvent] = deque(maxlen=count)
        self._count = count
        self._next = 0
        self._lock = anyio.Lock()

    async def up_to(self, earliest: int, end: int, read: Read) -> list[StoredEvent]:
        """Return the last events below offset `end`, of a log that begins at `earliest`, oldest first."""
        async with self._lock:
            if end < self._next:
                self._events.clear()
                self._next = 0
            start = max(self._next, earliest, end - self._count)
            while start < end:
                page = await read(start, end - start)
                self._events.extend(page.events)
                if page.next <= start:
                    break
                start = self._next = page.next
            return list(self._events)
