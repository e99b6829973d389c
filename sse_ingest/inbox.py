"""The bounded queue from a reader's thread to the workers of its source.

When it is full, the reader waits and stops reading its socket, so TCP slows down the source. The events of a crashed worker
return to the front even if the queue is full, because they were admitted before.
"""

import asyncio
import threading
from collections import deque

from sse_ingest.handover import RawEvent

__all__ = ["Inbox"]

INBOX_BYTES_MAX = 64 << 20
"""The limit of waiting bytes per source, which may be exceeded by one event; it matters only for very large events."""

TASK_BYTES_MAX = 8 << 20


class Inbox:
    """Events of one source that wait for a worker. Must be made on the event loop that takes them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.arrived = 0
        self._events: deque[RawEvent] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_over(self) -> bool:
        """Whether the inbox has ended and everything in it is taken."""
        return self._is_ended and not self._events

    def put_event(self, event: RawEvent, stopped: threading.Event) -> bool:
        """Add one event from the reader's thread, waiting while the inbox is full.

        Returns:
            False, without adding the event, once `stopped` is set; else True.
        """
        with self._lock:
            while len(self._events) >= self.size or self._bytes >= INBOX_BYTES_MAX:
                if stopped.is_set():
                    return False
                self._room.wait(0.2)
            self._events.append(event)
            self._bytes += len(event.data)
            self.arrived += 1
            if len(self._events) == 1:
                self._loop.call_soon_threadsafe(self._waiting.set)
        return True

    async def take_events(self, most: int) -> list[RawEvent]:
        """Wait for events and return up to `most`, fewer if they are large; none once the inbox has ended and is empty."""
        while True:
            with self._lock:
                taken = self._next(most)
                if taken or self._is_ended:
                    self._room.notify()
                    return taken
                self._waiting.clear()
            await self._waiting.wait()

    def _next(self, most: int) -> list[RawEvent]:
        taken: list[RawEvent] = []
        taken_bytes = 0
        while self._events and len(taken) < most and taken_bytes < TASK_BYTES_MAX:
            event = self._events.popleft()
            taken_bytes += len(event.data)
            taken.append(event)
        self._bytes -= taken_bytes
        return taken

    def give_back_events(self, events: list[RawEvent]) -> None:
        """Return events to the front, in their order."""
        with self._lock:
            self._events.extendleft(reversed(events))
            self._bytes += sum(len(event.data) for event in events)
        self._waiting.set()

    def end_events(self) -> None:
        """Close the inbox: no further event will be added."""
        with self._lock:
            self._is_ended = True
        self._waiting.set()
