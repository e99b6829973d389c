"""A queue of batches that are fetched before they can be published, bounded by changes and bytes."""

from collections import deque

import anyio

from change_stream.watch import ChangeBatch

__all__ = ["Ahead"]


class Ahead:
    """A queue of batches between one task that fetches and one that publishes.

    A batch may enter if the queue is empty, or if the queue then stays within `changes_max` and `bytes_max`. So a single batch
    above these limits still passes.
    """

    def __init__(self, changes_max: int, bytes_max: int) -> None:
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._batches: deque[ChangeBatch] = deque()
        self._failure: BaseException | None = None
        self._moved = anyio.Event()
        self.changes = 0
        self.bytes = 0

    async def put(self, batch: ChangeBatch) -> None:
        """Wait until there is room for `batch`."""
        while self._batches and (
            self.changes + len(batch.changes) > self._changes_max or self.bytes + batch.size > self._bytes_max
        ):
            await self._moved.wait()
        self._batches.append(batch)
        self._count(batch, 1)

    def fail(self, failure: BaseException) -> None:
        """Let `get` raise `failure` once every batch before it is taken."""
        self._failure = failure
        self._wake()

    async def get(self) -> ChangeBatch:
        """Wait for the next batch."""
        while not self._batches:
            if self._failure is not None:
                raise self._failure
            await self._moved.wait()
        batch = self._batches.popleft()
        self._count(batch, -1)
        return batch

    def _count(self, batch: ChangeBatch, sign: int) -> None:
        self.changes += sign * len(batch.changes)
        self.bytes += sign * batch.size
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
