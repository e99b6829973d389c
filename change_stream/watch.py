"""Read one change stream batch by batch.

Batches are read whole (`ServerCursor`), not through pymongo's `watch`, which needs an await for each change. The changes stay
BSON until the converter decodes them. That doubles the rate of one core.

The cursor lives on the server that opened it. When that server is gone, the stream is opened again at the position after the
last batch, so no change is lost or read twice.

A batch ends at its `postBatchResumeToken`, even if it has no changes: this is how the position of a quiet collection moves.
"""

from contextlib import suppress
from typing import Any

from bson.raw_bson import RawBSONDocument
from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from change_stream.convert import STRIPPED
from change_stream.elements import member_of
from change_stream.errors import WatchRefused, translate, translate_read
from change_stream.resume import StreamPosition
from change_stream.server_cursor import ServerCursor

__all__ = ["ChangeBatch", "CollectionWatch"]

_STRIP: list[dict[str, Any]] = [
    {"$unset": ["fullDocument", "fullDocumentBeforeChange", "updateDescription"]},
    {"$set": {STRIPPED: True}},
]


class ChangeBatch(Struct):
    """Changes as MongoDB sent them, and the position after them."""

    changes: list[RawBSONDocument]
    position: StreamPosition
    size: int
    """Bytes of the changes."""
    unreadable: str | None = None
    """Why the user's stages failed for the only change of this batch, which is then as it was before them."""


class CollectionWatch:
    """A change stream on one collection.

    Args:
        database: the database of the collection.
        collection: the collection's name.
        stage: the members of `$changeStream` besides the position.
        pipeline: the stages after `$changeStream`.
        bare: the same without the user's stages, None if the user has none.
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
        bare: list[dict[str, Any]] | None = None,
        batch_size: int,
        await_ms: int,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._database = database
        self._collection = collection
        self._stage = stage
        self._pipeline = pipeline
        self._bare = bare
        self._options = options or {}
        self.batch_size = batch_size
        self._await_ms = await_ms
        self._session: AsyncClientSession | None = None
        self._cursor: ServerCursor | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server has the stream open; an invalidate event ends it."""
        return self._cursor is not None and self._cursor.is_open

    @property
    def cursor_id(self) -> int:
        """The server's number of the open stream, 0 for none."""
        return 0 if self._cursor is None else self._cursor.cursor_id

    async def open(self, position: StreamPosition | None) -> ChangeBatch:
        """Open the stream after `position`, or at the current time for None. Return an empty batch.

        Raises:
            WatchInterrupted: MongoDB is unreachable or refuses for now.
            HistoryLost: the oplog does not contain the position.
            WatchRefused: MongoDB will never accept the stream.
        """
        return await self._open(position, self._pipeline)

    async def more(self, batch_size: int | None = None) -> ChangeBatch:
        """Wait for the next batch. Raises the errors of `open`, OversizeChange, and ChangeUnreadable if the user has stages."""
        assert self._cursor is not None  # noqa: S101 — the stream is open
        try:
            changes = await self._cursor.next_batch(batch_size or self.batch_size)
        except PyMongoError as error:
            raise (translate(error) if self._bare is None else translate_read(error)) from error
        return ChangeBatch(changes, self._position(), sum(len(change.raw) for change in changes))

    async def stripped(self, position: StreamPosition) -> ChangeBatch:
        """Return the first change after `position` without its documents, and close the stream."""
        batch = await self._open(position, [*self._pipeline, *_STRIP])
        while not batch.changes:
            batch = await self.more(1)
        await self.close()
        return batch

    async def open_bare(self, position: StreamPosition) -> None:
        """Open the stream after `position` without the user's stages. Raises the errors of `open`."""
        await self._open(position, self._pipeline if self._bare is None else self._bare)

    async def only(self, change: RawBSONDocument) -> list[RawBSONDocument]:
        """Return what the user's stages make of one change, and close the stream.

        Raises the errors of `more`.
        """
        is_meant = {"$match": {"_id._data": member_of(change, "_id")["_data"]}}
        after = StreamPosition.behind(dict(member_of(change, "_id")))
        # MongoDB does not find a token again in a stream whose first stage filters that token's change out.
        await self._open(StreamPosition(after.time).rewound(), [is_meant, *self._pipeline])
        found: list[RawBSONDocument] = []
        while not found:
            batch = await self.more(1)
            found = batch.changes
            if not self.is_open or batch.position.is_at_or_behind(after):
                break
        await self.close()
        return found

    async def close(self) -> None:
        """Close the cursor on the server, if the server can be reached."""
        session, self._session = self._session, None
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            with suppress(PyMongoError):
                await cursor.close()
        if session is not None:
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
        try:
            self._cursor = await ServerCursor.open(self._database, command, self._session, await_ms=self._await_ms)
        except PyMongoError as error:
            raise translate(error) from error
        return ChangeBatch([], self._position(), 0)

    def _position(self) -> StreamPosition:
        """Return the position after the last batch, which every server since MongoDB 4.0.7 sends."""
        token = None if self._cursor is None else self._cursor.resume_token
        if token is None:
            raise WatchRefused("MongoDB sends no position with its batches; use MongoDB 4.2 or later")
        return StreamPosition.behind(dict(token))
