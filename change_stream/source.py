"""One collection as it is watched: its streams, its copies, and the stamp of its records."""

from typing import Any

from bson import Timestamp
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure, PyMongoError

from change_stream.cluster import Cluster
from change_stream.errors import translate
from change_stream.resume import Position, ResumeRecord, Stamp, copied_identity, scope_of
from change_stream.settings import Settings
from change_stream.snapshot import Copier
from change_stream.watch import Watch

__all__ = ["Source"]

# An empty batch comes at least this often: it moves a quiet collection's position, and bounds how long a stop takes.
_AWAIT_MS = 1000
_COPY_AWAIT_MS = 10
_SPLIT: list[dict[str, Any]] = [{"$changeStreamSplitLargeEvent": {}}]


class Source:
    """Makes what reads `collection`; `scope` is the digest of what is watched and how."""

    def __init__(
        self, cluster: Cluster, database: AsyncDatabase[dict[str, Any]], settings: Settings, collection: str
    ) -> None:
        self._cluster = cluster
        self._database = database
        self._settings = settings
        self._collection = collection
        self._stage = settings.stage(has_pre_images=cluster.has_pre_images)
        self._pipeline = settings.pipeline_of(collection)
        self._split = _SPLIT if cluster.can_split else []
        self._collation: dict[str, Any] | None = None
        self.scope = scope_of(database.name, collection, self._pipeline, self._stage)

    def stamp(self, copied: bytes | None = None) -> Stamp:
        """The stamp of records while streaming, or behind `copied` in a snapshot."""
        return Stamp(self._cluster.id, self.scope, copied)

    def watch(self) -> Watch:
        """A stream of the collection's changes."""
        return self._watch(self._pipeline, _AWAIT_MS, {})

    def watch_through(self, copied: bytes) -> Watch:
        """A stream of the changes to documents up to the `_id` in `copied`, and of what befalls the whole collection.

        A change without `documentKey` passes, since what is missing compares as less than anything.
        """
        is_copied = {"$match": {"$expr": {"$lte": ["$documentKey._id", {"$literal": copied_identity(copied)}]}}}
        options = {} if self._collation is None else {"collation": self._collation}
        return self._watch([is_copied, *self._pipeline], _COPY_AWAIT_MS, options)

    def copier(self) -> Copier:
        """A reader of the collection's documents."""
        settings = self._settings
        return Copier(self._database, self._collection, chunk_size=settings.chunk_size, readers=settings.readers)

    async def first_record(self) -> ResumeRecord:
        """Return the record to begin with where there is none. Raises as `Watch.open` does."""
        start = self._settings.start_time()
        if start is not None:
            position = await self._position_at(start)
        elif self._settings.snapshot != "never":
            return ResumeRecord(self._cluster.id, self.scope, Position(await self._cluster.now()), b"")
        else:
            watch = self.watch()
            position = (await watch.open(None)).position
            await watch.close()
        return ResumeRecord(self._cluster.id, self.scope, position)

    async def prepare_copy(self) -> None:
        """Ask for the collection's collation, by which its `_id`s are ordered. Raises as `Watch.open` does."""
        try:
            async for found in await self._database.list_collections(filter={"name": self._collection}):
                self._collation = found["options"].get("collation")
        except OperationFailure:
            self._collation = None
        except PyMongoError as error:
            raise translate(error) from error

    async def _position_at(self, start: Timestamp | str) -> Position:
        if isinstance(start, Timestamp):
            return Position(Timestamp(start.time, 0)).rewound()
        oldest = await self._cluster.oldest()
        return Position(oldest or await self._cluster.now()).rewound()

    def _watch(self, pipeline: list[dict[str, Any]], await_ms: int, options: dict[str, Any]) -> Watch:
        return Watch(
            self._database,
            self._collection,
            stage=self._stage,
            pipeline=[*pipeline, *self._split],
            batch_size=self._settings.batch_size,
            await_ms=min(await_ms, int(self._settings.heartbeat * 1000)) or 1,
            options=options,
        )
