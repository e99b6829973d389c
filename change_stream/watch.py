"""One change stream, read batch by batch.

The commands are sent as they are instead of through pymongo's `watch`: a batch stays one piece of BSON whose changes are
decoded once, where they are converted, which doubles what one core reads. `watch` hands out its changes one await at a
time. The cursor lives on the server that opened it; a `getMore` that meets another primary fails and is begun anew from
the position behind the last batch, so nothing is lost or read twice.

A batch ends where `postBatchResumeToken` says, also one without changes: this is how a quiet collection's position moves
on.
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

from change_stream.backoff import Outage
from change_stream.convert import STRIPPED
from change_stream.errors import OversizeChange, WatchInterrupted, translate
from change_stream.extended_json import RAW_CODEC
from change_stream.resume import Position

__all__ = ["Batch", "Watch", "closed", "follow", "opened"]

_STRIP: list[dict[str, Any]] = [
    {"$unset": ["fullDocument", "fullDocumentBeforeChange", "updateDescription"]},
    {"$set": {STRIPPED: True}},
]


class Batch(Struct):
    """Changes as MongoDB sent them, and the position behind them."""

    changes: list[RawBSONDocument]
    position: Position
    size: int
    """Bytes of the whole batch."""


class Watch:
    """A change stream on one collection.

    `stage` holds the members of `$changeStream` besides the position, `pipeline` the stages behind it, `options` more of the
    aggregation. A batch has at most `batch_size` changes; an empty one comes after `await_ms` milliseconds without a change.
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
        """Whether the server still has more to give: an invalidate event ends a stream."""
        return self.cursor_id != 0

    async def open(self, position: Position | None) -> Batch:
        """Begin behind `position`, or now; returns an empty batch.

        Raises WatchInterrupted, HistoryLost or WatchRefused.
        """
        return await self._open(position, self._pipeline)

    async def more(self, batch_size: int | None = None) -> Batch:
        """Wait for the next batch. Raises as `open` does, and OversizeChange."""
        command = {
            "getMore": self.cursor_id,
            "collection": self._collection,
            "batchSize": batch_size or self.batch_size,
            "maxTimeMS": self._await_ms,
        }
        return await self._run("nextBatch", command, None)

    async def stripped(self, position: Position) -> Batch:
        """Return the first change behind `position` without its documents, and close the stream."""
        batch = await self._open(position, [*self._pipeline, *_STRIP])
        while not batch.changes:
            batch = await self.more(1)
        await self.close()
        return batch

    async def close(self) -> None:
        """Give the cursor back, as far as the server can be reached."""
        session, self._session = self._session, None
        if session is None:
            return
        with suppress(PyMongoError):
            if self.cursor_id:
                command = {"killCursors": self._collection, "cursors": [self.cursor_id]}
                await self._database.command(command, session=session)
        self.cursor_id = 0
        await session.end_session()

    async def _open(self, position: Position | None, pipeline: list[dict[str, Any]]) -> Batch:
        await self.close()
        self._session = self._database.client.start_session()
        start = position.start_options() if position is not None else {}
        command = {
            "aggregate": self._collection,
            "pipeline": [{"$changeStream": {**self._stage, **start}}, *pipeline],
            # The first reply has no time limit of its own, and would wait for a first change where the pipeline filters.
            "cursor": {"batchSize": 0},
            **self._options,
        }
        return await self._run("firstBatch", command, position)

    async def _run(self, batch: str, command: dict[str, Any], start: Position | None) -> Batch:
        try:
            reply = await self._database.command(command, codec_options=RAW_CODEC, session=self._session)
        except PyMongoError as error:
            raise translate(error) from error
        cursor = reply["cursor"]
        self.cursor_id = int(cursor["id"])
        token = cursor.get("postBatchResumeToken")
        position = Position.behind(dict(token)) if token is not None else start or Position(reply["operationTime"])
        return Batch(cursor[batch], position, len(cursor.raw))


async def closed(watch: Watch) -> None:
    """Close a stream in a short time, also when cancelled."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(1):
        await watch.close()


async def opened(watch: Watch, position: Position | None, outage: Outage) -> Batch:
    """Open a stream, however long MongoDB is away. Raises HistoryLost and WatchRefused."""
    while True:
        try:
            return await watch.open(position)
        except WatchInterrupted as interruption:
            await outage.pause(interruption)


async def follow(watch: Watch, position: Position, outage: Outage) -> AsyncGenerator[Batch, None]:
    """Give the batches behind `position` for ever; a stream that is interrupted or ends is opened anew.

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
            # Not when it opens: a stream that opens and breaks at once must slow down too.
            outage.end()
            position = batch.position
            yield batch
        except OversizeChange:
            is_oversize = True
        except WatchInterrupted as interruption:
            await watch.close()
            await outage.pause(interruption)


async def _past_oversize(watch: Watch, position: Position) -> AsyncGenerator[Batch, None]:
    """Give changes one by one up to one that is too large, and that one without its documents.

    A batch fails as a whole, so what lies before the large change in it is found by reading singly.
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
