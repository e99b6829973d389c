"""Read one change stream batch by batch.

The commands are sent directly, not through pymongo's `watch`, which needs an await for each change. A batch stays one piece of
BSON until the converter decodes it. That doubles the rate of one core.

The cursor lives on the server that opened it. A `getMore` that reaches another primary fails, and the stream is opened again
at the position after the last batch, so no change is lost or read twice.

A batch ends at its `postBatchResumeToken`, even if it has no changes: this is how the position of a quiet collection moves.
"""

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import anyio
from bson.raw_bson import RawBSONDocument
from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from change_stream.convert import STRIPPED
from change_stream.errors import OversizeChange, WatchInterrupted, translate
from change_stream.extended_json import RAW_CODEC
from change_stream.outage import Outage
from change_stream.resume import StreamPosition

__all__ = ["ChangeBatch", "CollectionWatch", "closed", "follow", "opened"]

_STRIP: list[dict[str, Any]] = [
    {"$unset": ["fullDocument", "fullDocumentBeforeChange", "updateDescription"]},
    {"$set": {STRIPPED: True}},
]


class ChangeBatch(Struct):
    """Changes as MongoDB sent them, and the position after them."""

    changes: list[RawBSONDocument]
    position: StreamPosition
    size: int
    """Bytes of the whole batch."""


class CollectionWatch:
    """A change stream on one collection.

    Args:
        database: the database of the collection.
        collection: the collection's name.
        stage: the members of `$changeStream` besides the position.
        pipeline: the stages after `$changeStream`.
        batch_size: the most changes in a batch.
        await_ms: milliseconds without a change after which an empty batch is returned.
        options: further members of the aggregate command.
    """

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        collection: str,
        *,
        stage: dict[str, Any],
        pipeline: list[dict[str, Any]],
        batch_size: int,
        await_ms: int,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._database = database
        self._collection = collection
        self._stage = stage
        self._pipeline = pipeline
        self._options = options or {}
        self.batch_size = batch_size
        self._await_ms = await_ms
        self._session: AsyncClientSession | None = None
        self.cursor_id = 0

    @property
    def is_open(self) -> bool:
        """Whether the server has the stream open; an invalidate event ends it."""
        return self.cursor_id != 0

    async def open(self, position: StreamPosition | None) -> ChangeBatch:
        """Open the stream after `position`, or at the current time for None. Return an empty batch.

        Raises:
            WatchInterrupted: MongoDB is unreachable or refuses for now.
            HistoryLost: the oplog does not contain the position.
            WatchRefused: MongoDB will never accept the stream.
        """
        return await self._open(position, self._pipeline)

    async def more(self, batch_size: int | None = None) -> ChangeBatch:
        """Wait for the next batch. Raises the errors of `open`, and OversizeChange."""
        command = {
            "getMore": self.cursor_id,
            "collection": self._collection,
            "batchSize": batch_size or self.batch_size,
            "maxTimeMS": self._await_ms,
        }
        return await self._run("nextBatch", command, None)

    async def stripped(self, position: StreamPosition) -> ChangeBatch:
        """Return the first change after `position` without its documents, and close the stream."""
        batch = await self._open(position, [*self._pipeline, *_STRIP])
        while not batch.changes:
            batch = await self.more(1)
        await self.close()
        return batch

    async def close(self) -> None:
        """Close the cursor on the server, if the server can be reached."""
        session, self._session = self._session, None
        if session is None:
            return
        with suppress(PyMongoError):
            if self.cursor_id:
                command = {"killCursors": self._collection, "cursors": [self.cursor_id]}
                await self._database.command(command, session=session)
        self.cursor_id = 0
        await session.end_session()

    async def _open(self, position: StreamPosition | None, pipeline: list[dict[str, Any]]) -> ChangeBatch:
        await self.close()
        self._session = self._database.client.start_session()
        start = position.start_options() if position is not None else {}
        command = {
            "aggregate": self._collection,
            "pipeline": [{"$changeStream": {**self._stage, **start}}, *pipeline],
            # The first reply has no time limit: with a filter in the pipeline it would wait for the first matching change.
            "cursor": {"batchSize": 0},
            **self._options,
        }
        return await self._run("firstBatch", command, position)

    async def _run(self, batch: str, command: dict[str, Any], start: StreamPosition | None) -> ChangeBatch:
        try:
            reply = await self._database.command(command, codec_options=RAW_CODEC, session=self._session)
        except PyMongoError as error:
            raise translate(error) from error
        cursor = reply["cursor"]
        self.cursor_id = int(cursor["id"])
        token = cursor.get("postBatchResumeToken")
        position = (
            StreamPosition.behind(dict(token)) if token is not None else start or StreamPosition(reply["operationTime"])
        )
        return ChangeBatch(cursor[batch], position, len(cursor.raw))


async def closed(watch: CollectionWatch) -> None:
    """Close a stream within a second, even when cancelled."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(1):
        await watch.close()


async def opened(watch: CollectionWatch, position: StreamPosition | None, outage: Outage) -> ChangeBatch:
    """Open a stream, retrying while MongoDB is unreachable. Raises HistoryLost and WatchRefused."""
    while True:
        try:
            return await watch.open(position)
        except WatchInterrupted as interruption:
            await outage.pause(interruption)


async def follow(watch: CollectionWatch, position: StreamPosition, outage: Outage) -> AsyncGenerator[ChangeBatch, None]:
    """Yield the batches after `position` forever; a stream that is interrupted or ends is opened again.

    Raises HistoryLost and WatchRefused.
    """
    is_oversize = False
    while True:
        try:
            if is_oversize:
                async for batch in _past_oversize(watch, position):
                    position = batch.position
                    yield batch
                is_oversize = False
            if not watch.is_open:
                await watch.open(position)
            batch = await watch.more()
            # End the outage only here, not after opening: there must also be a pause if a stream opens and then fails at once.
            outage.end()
            position = batch.position
            yield batch
        except OversizeChange:
            is_oversize = True
        except WatchInterrupted as interruption:
            await watch.close()
            await outage.pause(interruption)


async def _past_oversize(watch: CollectionWatch, position: StreamPosition) -> AsyncGenerator[ChangeBatch, None]:
    """Yield changes one by one, up to and including the first oversize change, whose documents are removed.

    A batch fails as a whole, so the changes before the large one can only be read one at a time.
    """
    await watch.open(position)
    for _ in range(watch.batch_size):
        if not watch.is_open:
            return
        try:
            batch = await watch.more(1)
        except OversizeChange:
            yield await watch.stripped(position)
            return
        position = batch.position
        yield batch
