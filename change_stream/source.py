"""The readers of one collection: its change streams and its copies. Also the stamp of its records."""

from typing import Any

from bson import Timestamp
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure, PyMongoError

from change_stream.cluster import Cluster
from change_stream.convert import OPERATIONS
from change_stream.errors import HistoryLost, WatchRefused, translate
from change_stream.resume import CopyProgress, ResumeRecord, Stamp, StreamPosition, copied_identity, scope_of
from change_stream.settings import ChangeStreamSettings
from change_stream.snapshot import Copier
from change_stream.watch import CollectionWatch

__all__ = ["CollectionSource"]

# An empty batch arrives at least this often. It moves a quiet collection's position and limits the time that a stop takes.
_AWAIT_MS = 1000
_COPY_AWAIT_MS = 10
_SPLIT: list[dict[str, Any]] = [{"$changeStreamSplitLargeEvent": {}}]
# MongoDB sends `disambiguatedPaths` only together with events about indexes and sharding, which `_CHANGES` removes.
_NO_COPY = (
    "{collection} is a {kind}, which MongoDB cannot read at one point in time, so it cannot be copied; give --snapshot never, "
    "no --on-history-lost resnapshot, and --reset if its copy has begun"
)
_EXPANDED: dict[str, Any] = {"showExpandedEvents": True}
_CHANGES: list[dict[str, Any]] = [{"$match": {"operationType": {"$in": list(OPERATIONS)}}}]


class CollectionSource:
    """Makes the readers of `collection`; `scope` is the digest of the collection, the pipeline and the options."""

    def __init__(
        self, cluster: Cluster, database: AsyncDatabase[dict[str, Any]], settings: ChangeStreamSettings, collection: str
    ) -> None:
        self._cluster = cluster
        self._database = database
        self._settings = settings
        self._collection = collection
        is_expanded = cluster.disambiguates_paths and not settings.fields_of(collection).is_everything
        self._stage = settings.stage(has_pre_images=cluster.has_pre_images) | (_EXPANDED if is_expanded else {})
        self._changes = _CHANGES if is_expanded else []
        self._pipeline = settings.pipeline_of(collection)
        self._split = _SPLIT if cluster.can_split else []
        self._collation: dict[str, Any] | None = None
        self.scope = scope_of(database.name, collection, self._pipeline, self._stage)

    def stamp(self, copy: CopyProgress | None = None) -> Stamp:
        """Return the stamp of records while streaming, or in a snapshot that is as far as `copy`."""
        return Stamp(self._cluster.id, self.scope, copy)

    async def estimate(self) -> int:
        """Return approximately how many documents the collection has. Raises the errors of `CollectionWatch.open`."""
        try:
            return await self._database[self._collection].estimated_document_count()
        except PyMongoError as error:
            raise translate(error) from error

    def watch(self) -> CollectionWatch:
        """Return a stream of the collection's changes."""
        return self._watch([], _AWAIT_MS, {})

    def watch_through(self, copied: bytes) -> CollectionWatch:
        """Return a stream of the changes to documents up to the `_id` in `copied`, and to the collection as a whole.

        A change without `documentKey` passes the filter, since a missing value sorts before every other.
        """
        is_copied = {"$match": {"$expr": {"$lte": ["$documentKey._id", copied_identity(copied)]}}}
        options = {} if self._collation is None else {"collation": self._collation}
        return self._watch([is_copied], _COPY_AWAIT_MS, options)

    def copier(self) -> Copier:
        """Return a reader of the collection's documents."""
        settings = self._settings
        return Copier(
            self._database,
            self._collection,
            now=self._cluster.now,
            chunk_size=settings.chunk_size,
            readers=settings.readers,
            query=settings.filter_of(self._collection) or {},
        )

    async def first_record(self) -> ResumeRecord:
        """Return the record to start with if none is stored. Raises the errors of `CollectionWatch.open`."""
        start = self._settings.start_time()
        if start is not None:
            position = await self._position_at(start)
        elif self._settings.snapshot != "never":
            await self.prepare_copy()
            return ResumeRecord(self._cluster.id, self.scope, StreamPosition(await self._cluster.now()), CopyProgress())
        else:
            watch = self.watch()
            position = (await watch.open(None)).position
            await watch.close()
        return ResumeRecord(self._cluster.id, self.scope, position)

    async def prepare_copy(self) -> None:
        """Check that the collection can be copied, and read the collation that orders its `_id`s.

        Raises:
            WatchRefused: MongoDB cannot read this kind of collection at one point in time.
            WatchInterrupted, HistoryLost: as `CollectionWatch.open` does.
        """
        self._collation = None
        try:
            async for found in await self._database.list_collections(filter={"name": self._collection}):
                kind = "capped collection" if found["options"].get("capped") else found.get("type", "collection")
                if kind != "collection":
                    raise WatchRefused(_NO_COPY.format(collection=self._collection, kind=kind))
                self._collation = found["options"].get("collation")
        except OperationFailure:
            self._collation = None
        except PyMongoError as error:
            raise translate(error) from error

    async def _position_at(self, start: Timestamp | str) -> StreamPosition:
        if isinstance(start, Timestamp):
            return StreamPosition(Timestamp(start.time, 0)).rewound()
        return StreamPosition(await self.oldest()).rewound()

    async def now(self) -> Timestamp:
        """Return MongoDB's time. Raises the errors of `CollectionWatch.open`."""
        return await self._cluster.now()

    async def oldest(self) -> Timestamp:
        """Return the time of the oldest change that MongoDB still has. Raises the errors of `CollectionWatch.open`.

        Without the right to read the oplog, it is found by opening streams at other times, to the second.
        """
        found = await self._cluster.oldest()
        if found is not None:
            return found
        # History reaches back to `high`. It does not reach back to any second before `low`.
        low, high = 1, (await self._cluster.now()).time
        while low < high:
            middle = (low + high) // 2
            if await self._reaches_back_to(middle):
                high = middle
            else:
                low = middle + 1
        return Timestamp(high, 1)

    async def _reaches_back_to(self, second: int) -> bool:
        watch = self._watch([], _COPY_AWAIT_MS, {})
        try:
            # MongoDB looks for the position when it reads the first batch.
            await watch.open(StreamPosition(Timestamp(second, 0)))
            await watch.more(1)
        except HistoryLost:
            return False
        finally:
            await watch.close()
        return True

    def _watch(self, before: list[dict[str, Any]], await_ms: int, options: dict[str, Any]) -> CollectionWatch:
        return CollectionWatch(
            self._database,
            self._collection,
            stage=self._stage,
            pipeline=[*self._changes, *before, *self._pipeline, *self._split],
            bare=[*self._changes, *before, *self._split] if self._pipeline else None,
            batch_size=self._settings.batch_size,
            await_ms=min(await_ms, int(self._settings.heartbeat * 1000)) or 1,
            options=options,
        )
