"""Copies the documents that are there, and joins them to the changes without loss or double.

The collection is copied in rounds, in the order of `_id`. A round reads the next chunks as they were at one cluster time T;
then the changes up to T of the documents copied before are published; then the chunks. So at each moment there is one
position and one `_id`: every change up to the position is in the topic for the documents up to the `_id`, and the documents
behind it have not been touched. Both are in the record that each event carries, which makes a killed copy go on with the
next document. A change to a document that is not copied yet is never published: the chunk will have it. Since the position
moves on with each round, a copy may take longer than the oplog reaches back.

`_id`s are compared by MongoDB, which orders all BSON types and knows the collection's collation; Python does neither.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import anyio
from bson import Timestamp
from bson.raw_bson import RawBSONDocument
from msgspec import Struct
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from broker.errors import StartError
from change_stream.backoff import Outage
from change_stream.errors import WatchInterrupted, translate
from change_stream.extended_json import RAW_CODEC
from change_stream.outlet import Outlet
from change_stream.resume import Position, Stamp, copied_identity, copied_through, token_time
from change_stream.watch import Watch, closed, follow

__all__ = ["Chunk", "Copier", "Snapshot", "send_through"]

_CHUNK_BYTES = 16 << 20


class Chunk(Struct):
    """Documents behind each other as they were at `time`; `is_last` where no more follow them."""

    documents: list[RawBSONDocument]
    time: Timestamp
    is_last: bool


class Copier:
    """Reads a collection in chunks of `chunk_size` documents, `readers` at a time."""

    def __init__(
        self, database: AsyncDatabase[dict[str, Any]], collection: str, *, chunk_size: int, readers: int
    ) -> None:
        self._database = database
        self._collection = collection
        self._chunk_size = chunk_size
        self._readers = readers

    async def read(self, copied: bytes) -> list[Chunk]:
        """Read the next chunks behind `copied` (BSON of an `_id`, or nothing), all as of one time.

        Raises as `Watch.open` does.
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
        """Return how many documents a chunk has: fewer where they are large. Raises as `Watch.open` does."""
        try:
            stats = await self._database.command("collStats", self._collection)
        except PyMongoError:
            return self._chunk_size
        return max(1, min(self._chunk_size, _CHUNK_BYTES // max(1, int(stats.get("avgObjSize", 1)))))

    async def _bounds(self, copied: bytes) -> tuple[list[dict[str, Any]], Timestamp, bool]:
        """Return the filters of the next ranges, their common time, and whether the last of them is open."""
        size = await self.chunk_size()
        filters: list[dict[str, Any]] = []
        low = copied
        time: Timestamp | None = None
        while True:
            command = {"filter": _between(low, b""), "projection": {"_id": 1}, "skip": size - 1, "limit": 1}
            found, time = await self._find(command, time)
            high = copied_through(found[0]) if found else b""
            filters.append(_between(low, high))
            if not high:
                return filters, time, True
            if len(filters) == self._readers:
                return filters, time, False
            low = high

    async def _range(self, between: dict[str, Any], time: Timestamp) -> list[RawBSONDocument]:
        found, _ = await self._find({"filter": between}, time)
        return found

    async def _find(self, members: dict[str, Any], time: Timestamp | None) -> tuple[list[RawBSONDocument], Timestamp]:
        """Find in the order of `_id`, as of `time` or of a time that MongoDB chooses and that is returned."""
        at = {} if time is None else {"atClusterTime": time}
        command = {
            "find": self._collection,
            # Both, since shards are merged by the order that is asked for, and one server's index has it already.
            "hint": {"_id": 1},
            "sort": {"_id": 1},
            "batchSize": self._chunk_size,
            "readConcern": {"level": "snapshot", **at},
            **members,
        }
        async with self._database.client.start_session(causal_consistency=False) as session:
            try:
                # Where the collection does not exist, MongoDB tells no time of the read; an earlier one is as good, since
                # nothing is copied and every change from then on comes through the stream.
                before = time or (await self._database.command("ping", session=session))["operationTime"]
                reply = await self._database.command(command, codec_options=RAW_CODEC, session=session)
                cursor = reply["cursor"]
                documents = list(cursor["firstBatch"])
                time = cursor.get("atClusterTime", before) if time is None else time
                while cursor["id"]:
                    more = {"getMore": cursor["id"], "collection": self._collection}
                    reply = await self._database.command(more, codec_options=RAW_CODEC, session=session)
                    cursor = reply["cursor"]
                    documents += cursor["nextBatch"]
            except PyMongoError as error:
                raise translate(error) from error
        return documents, time


class Snapshot:
    """Copies one collection into an outlet.

    `watch_through` makes a watch of the changes to documents up to an `_id`; `stamp_behind` the stamp for the last `_id`
    copied.
    """

    def __init__(
        self,
        copier: Copier,
        watch_through: Callable[[bytes], Watch],
        stamp_behind: Callable[[bytes], Stamp],
        outage: Outage,
    ) -> None:
        self._copier = copier
        self._watch_through = watch_through
        self._stamp_behind = stamp_behind
        self._outage = outage

    async def run(self, outlet: Outlet) -> None:
        """Copy what lies behind `outlet.copied`; then its position is where the changes go on, and `copied` is None.

        Raises HistoryLost.
        """
        copied = outlet.copied or b""
        while True:
            chunks = await self._read(copied)
            time = chunks[0].time
            if copied:
                watch = self._watch_through(copied)
                await send_through(outlet, watch, self._stamp_behind(copied), time=time, outage=self._outage)
            for chunk in chunks:
                outlet.position = Position(time)
                await outlet.send_documents(chunk.documents, outlet.position, self._stamp_behind)
                if chunk.documents:
                    outlet.copied = copied = copied_through(chunk.documents[-1])
            if chunks[-1].is_last:
                outlet.copied = None
                return

    async def _read(self, copied: bytes) -> list[Chunk]:
        while True:
            try:
                return await self._copier.read(copied)
            except WatchInterrupted as interruption:
                await self._outage.pause(interruption)


async def send_through(outlet: Outlet, watch: Watch, stamp: Stamp, *, time: Timestamp, outage: Outage) -> None:
    """Publish the changes behind the outlet's position up to and with cluster time `time`. Raises HistoryLost."""
    try:
        async with aclosing(follow(watch, outlet.position, outage)) as batches:
            async for batch in batches:
                wanted = [change for change in batch.changes if token_time(change["_id"]) <= time]
                await outlet.send_changes(wanted, stamp)
                is_past = len(wanted) < len(batch.changes)
                outlet.position = Position(time) if is_past else batch.position
                # A batch may end within a transaction, whose changes share their time: only an empty one ends at `time`.
                if is_past or outlet.position.time > time or (outlet.position.time == time and not batch.changes):
                    return
    finally:
        await closed(watch)


def _between(low: bytes, high: bytes) -> dict[str, Any]:
    """The filter for what lies behind `low` and up to `high`; `$expr` compares across types, `$gt` alone does not."""
    bounds = []
    if low:
        bounds.append({"$gt": ["$_id", {"$literal": copied_identity(low)}]})
    if high:
        bounds.append({"$lte": ["$_id", {"$literal": copied_identity(high)}]})
    return {"$expr": {"$and": bounds}} if bounds else {}
