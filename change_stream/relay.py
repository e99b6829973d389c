"""Relay the changes of one collection to one topic.

Four invariants make each change appear once in the topic:

- The events of a producer carry the sequences 1, 2, 3 … in the order of MongoDB's changes. Each carries the resume record
  of the position after its change. The broker stores both in one write, so its last event *is* the position.
- A session begins by reading that position from the broker. It ends at the first failure that neither the broker's client nor
  the change stream repairs. Some events may be unconfirmed then. The next session begins after those that are in the topic, and
  reads the changes of the others from MongoDB again.
- A checkpoint without an event moves only when everything before it is confirmed.
- A session begins with a claim of the producer, so all events of earlier sessions and of other publishers are stored or refused
  before it reads the position.

Each collection has a separate stream instead of a share of one on the database. Its position is then one token that no other
collection holds back, and an error in one topic does not stop the others. The cost: MongoDB reads its oplog once per stream.
"""

from contextlib import aclosing
from typing import Any

import anyio
from pymongo.asynchronous.database import AsyncDatabase

from change_stream.ahead import Ahead
from change_stream.beginning import Beginning
from change_stream.cluster import Cluster
from change_stream.confirmations import Confirmations
from change_stream.convert import Converter
from change_stream.copying import Copying
from change_stream.errors import CollectionReplaced, HistoryLost
from change_stream.following import closed, follow, opened
from change_stream.history import bridge, gap
from change_stream.leadership import FENCED, Leadership
from change_stream.outage import Outage
from change_stream.outlet import ChangeOutlet
from change_stream.position_store import PositionStore
from change_stream.rejected import RejectedChanges
from change_stream.resume import CopyProgress, ResumeRecord, StreamPosition
from change_stream.settings import ChangeStreamSettings
from change_stream.source import CollectionSource
from change_stream.watch import CollectionWatch
from tweetwire import BrokerError, Client, Publisher, Refusal
from tweetwire.backoff import Backoff
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["Relay"]

# After a permanent refusal, this many events are published one by one, since the refused event is among the first.
_CAREFUL = 1000
_HOPELESS = frozenset({"bad_name", "forbidden", "unauthenticated"})


class Relay:
    """Publishes the changes of `collection` to `topic` until stopped."""

    def __init__(
        self,
        cluster: Cluster,
        database: AsyncDatabase[dict[str, Any]],
        client: Client,
        settings: ChangeStreamSettings,
        *,
        collection: str,
        topic: str,
    ) -> None:
        producer = settings.producer_of(collection)
        self.collection = collection
        self.topic = topic
        self.is_open = anyio.Event()
        self.outage = Outage(collection)
        self.source = CollectionSource(cluster, database, settings, collection)
        self.converter = Converter(
            collection,
            producer,
            mode=settings.json_mode,
            key_path=settings.key_of(collection),
            followers_path=settings.followers_of(collection),
            fields=settings.fields_of(collection),
            msg_bytes_max=settings.event_bytes_max - _ENVELOPE_BYTES_MAX,
        )
        self.rejected = RejectedChanges(client, producer, topic, keeps_raw=settings.rejected == "raw")
        self.ahead = Ahead(settings.ahead, settings.ahead_bytes)
        self.outlet: ChangeOutlet | None = None
        self.confirmations = Confirmations()
        self.leadership = Leadership(client, topic, producer, self.is_open.set)
        self.failures = 0
        self._cluster = cluster
        self._client = client
        self._settings = settings
        self._store = PositionStore(client, topic, producer)
        self.copying = Copying(
            cluster,
            client,
            self._store,
            source=self.source,
            outage=self.outage,
            collection=collection,
            on_begin=self.is_open.set,
        )
        self.copying.is_due = settings.snapshot in {"always", "only"}
        self.has_ended = anyio.Event()
        self._beginning = Beginning(
            cluster,
            self._store,
            source=self.source,
            outage=self.outage,
            collection=collection,
            is_reset_due=settings.reset,
            adopts=settings.adopt,
        )
        self._is_stopping = False
        # The position of an earlier session, if this publisher does not lead now
        self._known: StreamPosition | None = None
        self._work = anyio.CancelScope()

    @property
    def copied(self) -> int | None:
        """How many documents the running snapshot has copied, None if none runs."""
        return None if self.outlet is None or self.outlet.copy is None else self.outlet.copy.documents

    def _position(self) -> StreamPosition | None:
        return self._known if self.outlet is None else self.outlet.position

    def stop(self) -> None:
        """End `run` as soon as all published events are confirmed."""
        self._is_stopping = True
        self._work.cancel()

    async def run(self) -> None:
        """Publish until stopped, or stand by while another publisher leads.

        `is_open` is set when the position is stored and the stream is open, or when this publisher stands by.
        """
        backoff = Backoff()
        while not self._is_stopping:
            confirmed = self.confirmations.count
            try:
                await self._session()
            except BrokerError as error:
                if isinstance(error, Refusal) and error.code == FENCED:
                    self.leadership.lose(error)
                    self._known = self._position()
                    self.outlet = None
                    continue
                if isinstance(error, Refusal) and error.code in _HOPELESS:
                    reason = self._settings.login().reason(error)
                    raise StartError(f"the broker refuses topic {self.topic}: {reason}") from error
                self.confirmations.refusal = error if isinstance(error, Refusal) else None
                # It is unknown which of the sent events was refused; the next session reads the position from the topic.
                self.failures += 1
                logger().warning("publishing failed, restarting", topic=self.topic, reason=str(error))
                if self.confirmations.count > confirmed:
                    backoff.reset()
                await anyio.sleep(backoff.next_pause_s())
        self.is_open.set()
        self.has_ended.set()

    async def _session(self) -> None:
        """Publish from the topic's position until `stop`, or raise the error that ends the session."""
        with anyio.CancelScope() as self._work:
            self._store.epoch = await self.leadership.gain()
        if self._is_stopping:
            return
        publisher = self._client.publisher(
            self.topic,
            window=self._settings.window,
            on_confirm=self.confirmations.note_receipt,
            epoch=self.leadership.epoch,
        )
        # The work may be cancelled at any place, since the broker has the position. The end of the block waits for the
        # confirmations.
        async with publisher:
            with anyio.CancelScope() as self._work:
                if not self._is_stopping:
                    await self._relay(publisher)

    async def _relay(self, publisher: Publisher) -> None:
        last = await self._store.load()
        begun = await self._beginning.choose("" if last is None else last.checkpoint or "", self._position())
        record = begun.record
        if begun.is_first:
            self.copying.is_due = False
        self.converter.begin_session()
        self.rejected.begin_session()
        refusal = self.confirmations.refusal
        outlet = self.outlet = ChangeOutlet(
            publisher,
            self.converter,
            self.rejected,
            self._store,
            sequence=0 if last is None else last.sequence or 0,
            position=record.position,
            copy=record.copy,
            window_bytes=self._settings.window_bytes,
            careful=_CAREFUL if refusal is not None and not refusal.is_retryable else 0,
            hold=self.leadership.hold,
        )
        if begun.gap is not None:
            logger().error("changes were lost", collection=self.collection, topic=self.topic, **begun.gap.gap)
            await outlet.send_control(begun.gap, record.text())
            await outlet.flush()
        self._beginning.is_reset_due = False
        await self._tell_what_was_refused(outlet, record)
        try:
            if record.is_lost:
                raise CollectionReplaced(self.collection)
            self._reconcile(outlet, record)
            await self.copying.run(outlet)
            if self._settings.snapshot == "only":
                self._is_stopping = True
                return
            await self._stream(outlet)
        except HistoryLost as lost:
            await self._go_on_behind_gap(outlet, lost)

    async def _tell_what_was_refused(self, outlet: ChangeOutlet, record: ResumeRecord) -> None:
        """Publish a gap event if the broker refused a change but stored later ones, as its older versions do."""
        refused = self.confirmations.take_refused_changes(outlet.sequence, outlet.position)
        if refused is not None:
            reason = f"the broker refused {refused.changes} changes: {refused.refusal}"
            lost = gap(self.collection, refused.position, outlet.position, reason)
            logger().error("changes were lost", collection=self.collection, topic=self.topic, **lost.gap)
            await outlet.send_control(lost, record.text())

    def _reconcile(self, outlet: ChangeOutlet, record: ResumeRecord) -> None:
        """If the pipeline or the options have changed, begin at the record's time and skip published changes.

        The new stream may lack the record's token, so the stream cannot begin at it.
        """
        token = record.position.token
        if record.scope != self.source.scope and token is not None:
            logger().info("pipeline or options changed", collection=self.collection, topic=self.topic)
            outlet.skip_through = token["_data"]
            outlet.position = record.position.rewound()

    async def _stream(self, outlet: ChangeOutlet) -> None:
        """Publish the changes after the position until an error ends the stream."""
        watch = self.source.watch()
        ahead = self.ahead = Ahead(self._settings.ahead, self._settings.ahead_bytes)
        await opened(watch, outlet.position, self.outage)
        self.is_open.set()
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._fetch, watch, outlet.position, ahead)
            try:
                await self._publish(outlet, ahead)
            except (BrokerError, HistoryLost, StartError) as error:
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _fetch(self, watch: CollectionWatch, position: StreamPosition, ahead: Ahead) -> None:
        try:
            async with aclosing(follow(watch, position, self.outage)) as batches:
                async for batch in batches:
                    await ahead.put(batch)
        except (HistoryLost, StartError) as error:
            ahead.fail(error)
        finally:
            await closed(watch)

    async def _publish(self, outlet: ChangeOutlet, ahead: Ahead) -> None:
        stamp = self.source.stamp()
        heartbeat = self._settings.heartbeat
        next_heartbeat = anyio.current_time() + heartbeat
        while True:
            batch = await ahead.get()
            if batch.changes:
                await outlet.send_batch(batch, stamp)
                next_heartbeat = anyio.current_time() + heartbeat
            elif anyio.current_time() >= next_heartbeat and not self.converter.is_between_fragments:
                # A quiet collection's token must not grow older than the oplog.
                await outlet.save(stamp(batch.position.time, batch.position.token))
                next_heartbeat = anyio.current_time() + heartbeat
            outlet.position = batch.position

    async def _go_on_behind_gap(self, outlet: ChangeOutlet, lost: HistoryLost) -> None:
        """Publish a gap event; the next session begins at its record. Raises StartError if the policy is fail."""
        policy = "resnapshot" if self._settings.snapshot == "when_needed" else self._settings.on_history_lost
        if policy == "resnapshot":
            await self.outage.outlast(self.source.prepare_copy)
        behind = await self.outage.outlast(lambda: bridge(self.source, self.collection, outlet.position, lost, policy))
        logger().error("changes were lost", collection=self.collection, topic=self.topic, **behind.event.gap)
        stamp = self.source.stamp(CopyProgress() if behind.is_copy else outlet.copy)
        await outlet.send_control(behind.event, stamp(behind.position.time, None))


# The bytes of an event's line besides its message and checkpoint: names, an id and a key. Id and key have at most 256
# characters, and JSON may need six bytes for one of them.
_ENVELOPE_BYTES_MAX = 4096
