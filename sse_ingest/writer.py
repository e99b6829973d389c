"""Gathers what the workers hand on into batches and gives them to the store, one after the other.

One at a time: two at once would meet on the users they have in common and be run again. The way in is bounded, and who
finds it full waits; a tweet waits here no longer than `flush_every_s` and the write before it.
"""

from collections import deque
from collections.abc import Callable

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sse_ingest.batch import Batch, Entry, Reject
from sse_ingest.store import Store

__all__ = ["Item", "Writer"]

Item = Entry | Reject

DELIVERIES_MAX = 16
"""How many deliveries, of at most one worker's task each, may wait for the batch before them."""


class Writer:
    """Writes until its way in is closed and empty. `on_stored` is told of every tweet that was new."""

    def __init__(self, store: Store, size: int, flush_every_s: float, on_stored: Callable[[Entry], None]) -> None:
        self._store = store
        self._size = size
        self._flush_every_s = flush_every_s
        self._on_stored = on_stored
        self._waiting: deque[Item] = deque()
        self._incoming: MemoryObjectReceiveStream[list[Item]]
        self._way_in: MemoryObjectSendStream[list[Item]]
        self._way_in, self._incoming = anyio.create_memory_object_stream[list[Item]](DELIVERIES_MAX)

    async def put(self, items: list[Item]) -> None:
        """Hand on items, waiting while the way in is full."""
        await self._way_in.send(items)

    def end(self) -> None:
        """Say that nothing more will come."""
        self._way_in.close()

    async def run(self) -> None:
        """Write until the end, everything."""
        with self._incoming:
            is_open = True
            while is_open or self._waiting:
                batch, is_open = await self._gather()
                if batch:
                    for entry in await self._store.settle(batch):
                        self._on_stored(entry)

    async def _gather(self) -> tuple[Batch, bool]:
        """Return a batch that is full or old enough, and whether more may come."""
        batch = Batch(self._size)
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

    def _fill(self, batch: Batch) -> None:
        while self._waiting and not batch.is_full:
            batch.add(self._waiting.popleft())
