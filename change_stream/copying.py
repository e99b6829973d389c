"""The copy of a collection from its first mark to its last, within a session of a relay.

The topic has ``snapshot_begin``, an event for each document, the deletes of the documents that the topic had before and the
copy did not find, and ``snapshot_end``. All have the number of the copy, which is the sequence of its first event.
"""

from collections.abc import Callable

from change_stream.cluster import Cluster
from change_stream.message import Change
from change_stream.outage import Outage
from change_stream.outlet import ChangeOutlet
from change_stream.position_store import PositionStore
from change_stream.resume import CopyProgress, StreamPosition
from change_stream.snapshot import CollectionSnapshot, send_through
from change_stream.source import CollectionSource
from change_stream.vanished import vanished_documents
from tweetwire import Client
from tweetwire.runtime.program import logger

__all__ = ["Copying"]


class Copying:
    """Copies a collection if a copy is due or has begun. `on_begin` is called when a copy begins or continues."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        store: PositionStore,
        *,
        source: CollectionSource,
        outage: Outage,
        collection: str,
        on_begin: Callable[[], None],
    ) -> None:
        self.is_due = False
        self._cluster = cluster
        self._client = client
        self._store = store
        self._source = source
        self._outage = outage
        self._collection = collection
        self._on_begin = on_begin

    async def run(self, outlet: ChangeOutlet) -> None:
        """Copy, and leave the outlet at the position where changes continue. Raises HistoryLost."""
        source = self._source
        if outlet.copy is None and not self.is_due:
            return
        await self._outage.outlast(source.prepare_copy)
        if outlet.copy is None:
            now = await self._outage.outlast(self._cluster.now)
            await send_through(outlet, source.watch(), source.stamp(), time=now, outage=self._outage)
            outlet.position, outlet.copy = StreamPosition(now), CopyProgress()
        if outlet.copy.is_due:
            await self._begin(outlet)
        self.is_due = False
        self._on_begin()
        named = {"collection": self._collection, "topic": self._store.topic, "copy": outlet.copy.id}
        logger().info("snapshot started", **named)
        await CollectionSnapshot(source.copier(), source.watch_through, source.stamp, self._outage).run(outlet)
        await self._end(outlet, outlet.copy)
        logger().info("snapshot finished", **named)

    async def _begin(self, outlet: ChangeOutlet) -> None:
        estimate = await self._outage.outlast(self._source.estimate)
        outlet.copy = CopyProgress(id=outlet.sequence + 1)
        text = self._source.stamp(outlet.copy)(outlet.position.time, None)
        await outlet.send_control(self._mark("snapshot_begin", outlet, outlet.copy.id, estimate), text)

    async def _end(self, outlet: ChangeOutlet, copy: CopyProgress) -> None:
        """Publish the deletes of documents that the copy did not find, and the end of the copy."""
        await outlet.flush()
        vanished = await vanished_documents(self._client, self._store.topic, self._store.producer, copy.id)
        await outlet.send_vanished(vanished, self._source.stamp)
        text = self._source.stamp()(outlet.position.time, None)
        await outlet.send_control(self._mark("snapshot_end", outlet, copy.id, copy.documents), text)
        outlet.copy = None
        await outlet.flush()

    def _mark(self, op: str, outlet: ChangeOutlet, copy_id: int, documents: int) -> Change:
        mark = Change(op, self._collection, None, None, None, outlet.position.at_ms)
        mark.copy, mark.documents = copy_id, documents
        return mark
