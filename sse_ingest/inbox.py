"""The bounded way from a reader's thread to the workers of its source.

When it is full the reader waits, stops taking bytes from its socket, and so the source is slowed down by TCP. Events of a
crashed worker are given back at the front, beyond the bound: they had been let in already.
"""

import asyncio
import threading
from collections import deque

from sse_ingest.handover import RawEvent

__all__ = ["Inbox"]

INBOX_BYTES_MAX = 64 << 20
"""What waits for a worker of one source, and one event; it takes effect where events are very much larger than tweets."""

TASK_BYTES_MAX = 8 << 20


class Inbox:
    """Events of one source, waiting for a worker. Made on the event loop that takes them."""

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

    def put(self, event: RawEvent, stopped: threading.Event) -> bool:
        """Let one event in, from the reader's thread, waiting while the inbox is full.

        Returns False, without the event, once `stopped` is set.
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

    async def take(self, most: int) -> list[RawEvent]:
        """Wait for events and return up to `most`, fewer of large ones; none when the inbox has ended and is empty."""
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

    def give_back(self, events: list[RawEvent]) -> None:
        """Put events back to the front, in their order."""
        with self._lock:
            self._events.extendleft(reversed(events))
            self._bytes += sum(len(event.data) for event in events)
        self._waiting.set()

    def end(self) -> None:
        """Say that no further event will come."""
        with self._lock:
            self._is_ended = True
        self._waiting.set()
