"""Copy the existing documents, and combine them with the changes without loss or duplicates.

The collection is copied in rounds, in the order of `_id`. A round has three steps:

1. Read the next chunks as they were at one cluster time T.
2. Publish the changes up to T of the documents that were copied before.
3. Publish the chunks.

So the progress is one position and one `_id`. For documents up to the `_id`, the topic has every change up to the position; it
has nothing of later documents. Each event's record contains both, so an interrupted copy continues with the next document. A
change to a document that is not copied yet is never published, because its chunk will contain it. The position advances with
each round, so the copy may take longer than the time that the oplog covers.

MongoDB compares the `_id`s, because it orders all BSON types and knows the collection's collation. Python does neither.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import anyio
from bson import Timestamp
from bson.raw_bson import RawBSONDocument
from msgspec import Struct, structs
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from change_stream.elements import member_of
from change_stream.errors import WatchInterrupted, translate
from change_stream.following import closed, follow
from change_stream.outage import Outage
from change_stream.outlet import ChangeOutlet
from change_stream.resume import CopyProgress, Stamp, StreamPosition, copied_identity, copied_through, token_time
from change_stream.server_cursor import ServerCursor
from change_stream.watch import CollectionWatch
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["Chunk", "CollectionSnapshot", "Copier", "send_through"]

_CHUNK_BYTES = 16 << 20
_LOG_EVERY_S = 10.0


class Chunk(Struct):
    """Consecutive documents as they were at `time`; `is_last` if no documents follow them."""

    documents: list[RawBSONDocument]
    time: Timestamp
    is_last: bool


class Copier:
    """Reads the documents that match `query` in chunks of `chunk_size`, `readers` chunks at a time.

    `now` returns MongoDB's time.
    """

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        collection: str,
        *,
        now: Callable[[], Awaitable[Timestamp]],
        chunk_size: int,
        readers: int,
        query: dict[str, Any] | None = None,
    ) -> None:
        self._database = database
        self._now = now
        self._collection = collection
        self._chunk_size = chunk_size
        self._readers = readers
        self._query = query or {}

    async def read(self, copied: bytes) -> list[Chunk]:
        """Read the chunks after `copied` (BSON of an `_id`, or b"" for the beginning), all at one cluster time.

        Raises the errors of `CollectionWatch.open`.
        """
        bounds, time, is_last = await self._bounds(copied)
        documents: list[list[RawBSONDocument]] = [[] for _ in bounds]
        failures: list[Exception] = []

        async def read_range(n: int) -> None:
            try:
                documents[n] = await self._range(bounds[n], time)
            except (WatchInterrupted, StartError) as failure:
                failures.append(failure)

        async with anyio.create_task_group() as tasks:
            for n in range(len(bounds)):
                tasks.start_soon(read_range, n)
        if failures:
            raise failures[0]
        return [Chunk(found, time, is_last and n == len(bounds) - 1) for n, found in enumerate(documents)]

    async def chunk_size(self) -> int:
        """Return the number of documents in a chunk, which is lower for large documents.

        Raises the errors of `CollectionWatch.open`.
        """
        try:
            stats = await self._database.command("collStats", self._collection)
        except PyMongoError:
            return self._chunk_size
        return max(1, min(self._chunk_size, _CHUNK_BYTES // max(1, int(stats.get("avgObjSize", 1)))))

    async def _bounds(self, copied: bytes) -> tuple[list[dict[str, Any]], Timestamp, bool]:
        """Return the filters of the next ranges, their common time, and whether the last range has no upper bound."""
        size, time = await self.chunk_size(), await self._now()
        filters: list[dict[str, Any]] = []
        low = copied
        while True:
            command = {"filter": self._between(low, b""), "projection": {"_id": 1}, "skip": size - 1, "limit": 1}
            found = await self._find(command, time)
            high = copied_through(found[0]) if found else b""
            filters.append(self._between(low, high))
            if not high:
                return filters, time, True
            if len(filters) == self._readers:
                return filters, time, False
            low = high

    def _between(self, low: bytes, high: bytes) -> dict[str, Any]:
        bounds = _between(low, high)
        return {"$and": [self._query, bounds]} if self._query and bounds else self._query or bounds

    async def _range(self, between: dict[str, Any], time: Timestamp) -> list[RawBSONDocument]:
        return await self._find({"filter": between}, time)

    async def _find(self, members: dict[str, Any], time: Timestamp) -> list[RawBSONDocument]:
        """Find documents in the order of `_id` as they were at `time`."""
        command = {
            "find": self._collection,
            # The sort makes a router merge the shards in order; the hint gives that order on one server without sorting.
            "hint": {"_id": 1},
            "sort": {"_id": 1},
            "batchSize": self._chunk_size,
            "readConcern": {"level": "snapshot", "atClusterTime": time},
            **members,
        }
        async with self._database.client.start_session(causal_consistency=False) as session:
            try:
                cursor = await ServerCursor.open(self._database, command, session)
                documents = await cursor.next_batch(self._chunk_size)
                while cursor.is_open:
                    documents += await cursor.next_batch(self._chunk_size)
            except PyMongoError as error:
                raise translate(error) from error
        return documents


class CollectionSnapshot:
    """Copies one collection into an outlet.

    `watch_through` opens a stream of the changes to documents up to an `_id`. `stamp_of` returns the stamp for the progress of
    the copy.
    """

    def __init__(
        self,
        copier: Copier,
        watch_through: Callable[[bytes], CollectionWatch],
        stamp_of: Callable[[CopyProgress], Stamp],
        outage: Outage,
    ) -> None:
        self._copier = copier
        self._watch_through = watch_through
        self._stamp_of = stamp_of
        self._outage = outage

    async def run(self, outlet: ChangeOutlet) -> None:
        """Copy the documents after `outlet.copy`. Changes continue at `outlet.position`.

        Raises HistoryLost.
        """
        log_at = anyio.current_time() + _LOG_EVERY_S
        while True:
            copy = outlet.copy or CopyProgress()
            chunks = await self._read(copy.through)
            time = chunks[0].time
            if copy.through:
                watch = self._watch_through(copy.through)
                await send_through(outlet, watch, self._stamp_of(copy), time=time, outage=self._outage)
            for chunk in chunks:
                outlet.position = StreamPosition(time)
                await outlet.send_documents(chunk.documents, outlet.position, self._stamp_of)
            if chunks[-1].is_last:
                return
            if outlet.copy is not None and anyio.current_time() >= log_at:
                log_at = anyio.current_time() + _LOG_EVERY_S
                logger().info("snapshot progress", copy=outlet.copy.id, documents=outlet.copy.documents)

    async def _read(self, copied: bytes) -> list[Chunk]:
        while True:
            try:
                return await self._copier.read(copied)
            except WatchInterrupted as interruption:
                await self._outage.pause(interruption)


async def send_through(
    outlet: ChangeOutlet, watch: CollectionWatch, stamp: Stamp, *, time: Timestamp, outage: Outage
) -> None:
    """Publish the changes from the outlet's position up to and including cluster time `time`. Raises HistoryLost."""
    try:
        async with aclosing(follow(watch, outlet.position, outage)) as batches:
            async for batch in batches:
                wanted = [change for change in batch.changes if token_time(member_of(change, "_id")) <= time]
                await outlet.send_batch(structs.replace(batch, changes=wanted), stamp)
                is_past = len(wanted) < len(batch.changes)
                outlet.position = StreamPosition(time) if is_past else batch.position
                # A batch may end inside a transaction, whose changes have the same time. So only an empty batch proves the end.
                if is_past or outlet.position.time > time or (outlet.position.time == time and not batch.changes):
                    return
    finally:
        await closed(watch)


def _between(low: bytes, high: bytes) -> dict[str, Any]:
    """Return the filter for `_id`s above `low` and up to `high`; `$expr` compares across types, `$gt` alone does not."""
    bounds = []
    if low:
        bounds.append({"$gt": ["$_id", copied_identity(low)]})
    if high:
        bounds.append({"$lte": ["$_id", copied_identity(high)]})
    return {"$expr": {"$and": bounds}} if bounds else {}
