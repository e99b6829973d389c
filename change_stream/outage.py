"""The state of an outage of MongoDB, and the pauses between retries."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from change_stream.errors import RefusedForNow, WatchInterrupted
from tweetwire.backoff import Backoff
from tweetwire.runtime.program import logger

__all__ = ["Outage"]

T = TypeVar("T")


class Outage:
    """Whether MongoDB is unreachable for one collection, and how many tries have failed."""

    def __init__(self, collection: str, backoff: Backoff | None = None) -> None:
        self.count = 0
        self._reasons: set[str] = set()
        self._collection = collection
        self._backoff = backoff or Backoff()

    @property
    def is_on(self) -> bool:
        """Whether the last request to MongoDB failed."""
        return bool(self._reasons)

    async def pause(self, reason: Exception) -> None:
        """Record a failure and wait before the next try; each reason is logged as a warning once per outage."""
        text = str(reason)
        log = logger().debug if text in self._reasons else logger().warning
        event = "MongoDB refused, retrying" if isinstance(reason, RefusedForNow) else "MongoDB unreachable, retrying"
        log(event, collection=self._collection, reason=text)
        self._reasons.add(text)
        self.count += 1
        await anyio.sleep(self._backoff.next_pause_s())

    async def outlast(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request to MongoDB until it succeeds. Raises the lasting refusals of `CollectionWatch.open`."""
        while True:
            try:
                return await ask()
            except WatchInterrupted as interruption:
                await self.pause(interruption)

    def end(self) -> None:
        """Record that MongoDB answers."""
        if self._reasons:
            logger().info("MongoDB answers again", collection=self._collection)
        self._reasons.clear()
        self._backoff.reset()
