"""The last events of a topic, read once for all pages."""

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.replies import Page

__all__ = ["TopicTail"]

Read = Callable[[int, int], Awaitable[Page]]


class TopicTail:
    """Keeps up to `count` events, and reads each only once."""

    def __init__(self, count: int) -> None:
        self._events: deque[StoredEvent] = deque(maxlen=count)
        self._count = count
        self._next = 0
        self._lock = anyio.Lock()

    async def up_to(self, earliest: int, end: int, read: Read) -> list[StoredEvent]:
        """Return the last events below offset `end`, oldest first. The log begins at offset `earliest`."""
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
