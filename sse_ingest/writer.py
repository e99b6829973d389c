"""Collect the workers' results in batches, and give these to the store one after the other.

Two batches at once would conflict if both have tweets of one user, and one of them would run again. The queue is bounded, so a
worker's result waits while it is full. A tweet waits here at most `flush_every_s` and the duration of the previous write.
"""

from collections import deque
from collections.abc import Callable

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sse_ingest.batch import BatchEntry, TweetEntry, WriteBatch
from sse_ingest.store import Store

__all__ = ["Writer"]

DELIVERIES_MAX = 16
"""The most deliveries, each from one worker's task, that may wait for the current batch."""


class Writer:
    """Writes until its queue is closed and empty. `on_stored` is called with every new tweet."""

    def __init__(self, store: Store, size: int, flush_every_s: float, on_stored: Callable[[TweetEntry], None]) -> None:
        self._store = store
        self._size = size
        self._flush_every_s = flush_every_s
        self._on_stored = on_stored
        self._waiting: deque[BatchEntry] = deque()
        self._incoming: MemoryObjectReceiveStream[list[BatchEntry]]
        self._way_in: MemoryObjectSendStream[list[BatchEntry]]
        self._way_in, self._incoming = anyio.create_memory_object_stream[list[BatchEntry]](DELIVERIES_MAX)

    async def put_entries(self, entries: list[BatchEntry]) -> None:
        """Queue entries, waiting while the queue is full."""
        await self._way_in.send(entries)

    def end_entries(self) -> None:
        """Close the queue: no more entries will follow."""
        self._way_in.close()

    async def run(self) -> None:
        """Write until the queue is closed and empty."""
        with self._incoming:
            is_open = True
            while is_open or self._waiting:
                batch, is_open = await self._gather()
                if batch:
                    for entry in await self._store.store_batch(batch):
                        self._on_stored(entry)

    async def _gather(self) -> tuple[WriteBatch, bool]:
        """Return a batch that is full or old enough, and whether more entries may follow."""
        batch = WriteBatch(self._size)
        self._fill(batch)
        with anyio.CancelScope() as scope:
            if batch:
                scope.deadline = anyio.current_time() + self._flush_every_s
            while not batch.is_full:
                try:
                    self._waiting.extend(await self._incoming.receive())
                except anyio.EndOfStream:
                    return batch, False
                if not batch:
                    scope.deadline = anyio.current_time() + self._flush_every_s
                self._fill(batch)
        return batch, True

    def _fill(self, batch: WriteBatch) -> None:
        while self._waiting and not batch.is_full:
            batch.add_entry(self._waiting.popleft())
