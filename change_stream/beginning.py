"""The record with which a session begins: the topic's own, or a first one if the topic has none or must not be trusted."""

from msgspec import Struct, structs

from change_stream.cluster import Cluster
from change_stream.history import gap
from change_stream.message import Change
from change_stream.outage import Outage
from change_stream.position_store import PositionStore
from change_stream.resume import ResumeRecord, StreamPosition
from change_stream.source import CollectionSource
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["Beginning", "Begun"]

_RESET = "the position was reset (--reset)"
_BROKER_LOST = "the broker lost the position of this topic"


class Begun(Struct, frozen=True):
    """The record with which a session begins. `gap` is set if the changes before it may be missing in the topic."""

    record: ResumeRecord
    is_first: bool = False
    gap: Change | None = None


class Beginning:
    """Chooses the record with which a session begins.

    `is_reset_due` forgets the stored position once. `adopts` takes over the position of another cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: PositionStore,
        *,
        source: CollectionSource,
        outage: Outage,
        collection: str,
        is_reset_due: bool,
        adopts: bool,
    ) -> None:
        self.is_reset_due = is_reset_due
        self._cluster = cluster
        self._store = store
        self._source = source
        self._outage = outage
        self._collection = collection
        self._adopts = adopts

    async def choose(self, saved: str, known: StreamPosition | None) -> Begun:
        """Return the record to begin with.

        Args:
            saved: the checkpoint of the topic's producer, empty if it has none.
            known: the position of this program's last session, None before its first one.

        Raises:
            StartError: the stored record cannot be used.
        """
        if saved and not self.is_reset_due:
            return Begun(self._own(self._parsed(saved)))
        before = self._before(saved) if saved else known
        record = await self._outage.outlast(self._source.first_record)
        if before is None:
            # Store it before the stream opens, so that no later change can be missed.
            await self._store.save(record.text())
            return Begun(record, is_first=True)
        reason = _RESET if saved else _BROKER_LOST
        return Begun(record, is_first=True, gap=gap(self._collection, before, record.position, reason))

    def _parsed(self, saved: str) -> ResumeRecord:
        try:
            return ResumeRecord.parse(saved)
        except ValueError as error:
            raise StartError(
                f"the checkpoint of {self._store.producer} on topic {self._store.topic} was not written by this program; "
                "choose another topic (--map) or give --reset"
            ) from error

    def _before(self, saved: str) -> StreamPosition | None:
        try:
            return ResumeRecord.parse(saved).position
        except ValueError:
            return None

    def _own(self, record: ResumeRecord) -> ResumeRecord:
        """Return a record of this cluster. A record of another cluster is adopted or refused."""
        if self._cluster.is_named(record.cluster):
            return structs.replace(record, cluster=self._cluster.id)
        if not self._adopts:
            raise StartError(
                f"topic {self._store.topic} holds {self._collection} of another MongoDB cluster ({record.cluster}, this one is "
                f"{self._cluster.id}); choose another topic (--map), give --adopt if this is a copy of it, or give --reset"
            )
        logger().warning("position of another cluster adopted", topic=self._store.topic, cluster=record.cluster)
        # A token is valid in its own cluster only.
        return structs.replace(record, cluster=self._cluster.id, position=StreamPosition(record.position.time))
