"""One change stream, read batch by batch.

The commands are sent as they are instead of through pymongo's `watch`: a batch stays one piece of BSON whose changes are
decoded once, where they are converted, which doubles what one core reads. `watch` hands out its changes one await at a
time. The cursor lives on the server that opened it; a `getMore` that meets another primary fails and is begun anew from
the position behind the last batch, so nothing is lost or read twice.

A batch ends where `postBatchResumeToken` says, also one without changes: this is how a quiet collection's position moves
on.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import anyio
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from change_stream.backoff import Backoff
from change_stream.errors import WatchInterrupted, translate
from change_stream.resume import Position

__all__ = ["Batch", "Watch", "follow"]

_RAW = CodecOptions(document_class=RawBSONDocument)


class Batch(Struct):
    """Changes as MongoDB sent them, and the position behind them."""

    changes: list[RawBSONDocument]
    position: Position
    size: int
    """Bytes of the whole batch."""


class Watch:
    """A change stream on one collection.

    `stage` holds the members of `$changeStream` besides the position, `pipeline` the stages behind it. A batch has at most
    `batch_size` changes; an empty one comes after `await_ms` milliseconds without a change.
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
    ) -> None:
        self._database = database
        self._collection = collection
        self._stage = stage
        self._pipeline = pipeline
        self._batch_size = batch_size
        self._await_ms = await_ms
        self._session: AsyncClientSession | None = None
        self.cursor_id = 0

    @property
    def is_open(self) -> bool:
        """Whether the server still has more to give: an invalidate event ends a stream."""
        return self.cursor_id != 0

    async def open(self, position: Position | None) -> Batch:
        """Begin behind `position`, or now; returns the first batch, which is mostly empty.

        Raises WatchInterrupted, HistoryLost, OversizeChange or WatchRefused.
        """
        await self.close()
        self._session = self._database.client.start_session()
        start = position.start_options() if position is not None else {}
        pipeline = [{"$changeStream": {**self._stage, **start}}, *self._pipeline]
        # The first reply has no time limit of its own, and would wait for a first change where the pipeline filters.
        cursor = {"batchSize": 0}
        return await self._run(
            "firstBatch", {"aggregate": self._collection, "pipeline": pipeline, "cursor": cursor}, position
        )

    async def more(self) -> Batch:
        """Wait for the next batch. Raises as `open` does."""
        command = {
            "getMore": self.cursor_id,
            "collection": self._collection,
            "batchSize": self._batch_size,
            "maxTimeMS": self._await_ms,
        }
        return await self._run("nextBatch", command, None)

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

    async def _run(self, batch: str, command: dict[str, Any], start: Position | None) -> Batch:
        try:
            reply = await self._database.command(command, codec_options=_RAW, session=self._session)
        except PyMongoError as error:
            raise translate(error) from error
        cursor = reply["cursor"]
        self.cursor_id = int(cursor["id"])
        token = cursor.get("postBatchResumeToken")
        position = Position.behind(dict(token)) if token is not None else start or Position(reply["operationTime"])
        return Batch(cursor[batch], position, len(cursor.raw))


async def follow(
    watch: Watch, first: Batch, on_interrupt: Callable[[WatchInterrupted], None], backoff: Backoff | None = None
) -> AsyncIterator[Batch]:
    """Give the batches of an opened stream for ever, and open it anew where it is interrupted or ends.

    `on_interrupt` is told of each interruption. Raises HistoryLost, OversizeChange and WatchRefused.
    """
    backoff = backoff or Backoff()
    batch = first
    while True:
        yield batch
        while True:
            try:
                if not watch.is_open:
                    batch = await watch.open(batch.position)
                    break
                batch = await watch.more()
            except WatchInterrupted as interruption:
                on_interrupt(interruption)
                await watch.close()
                await anyio.sleep(backoff.pause_s())
            else:
                # Not when it opens: a stream that opens and breaks at once must slow down too.
                backoff.reset()
                break
