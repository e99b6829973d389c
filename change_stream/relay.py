"""One collection → one topic.

What holds at every moment, and makes each change appear once in the topic:

- The events of a producer carry the sequences 1, 2, 3 … in the order of MongoDB's changes, and each carries the resume
  record of the place behind its change. The broker stores both in one write, so its last event *is* the position.
- A session begins by asking the broker for that position and ends at the first failure that neither the broker's client nor
  the change stream repairs by itself. Whatever was on its way then is either in the topic, and the next session begins
  behind it, or is not, and it is read from MongoDB again.
- A checkpoint without an event moves only when everything before it is confirmed.

Each collection has a stream of its own rather than a share of one on the database: its position is then one token that no
other collection holds back, and what befalls one topic leaves the others alone. MongoDB reads its oplog once for each.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

import anyio
from pymongo.asynchronous.database import AsyncDatabase

from broker import BrokerError, Client, Publisher, Receipt, Refusal
from broker.errors import StartError
from broker.program import logger
from change_stream.ahead import Ahead
from change_stream.backoff import Backoff, Outage
from change_stream.cluster import Cluster
from change_stream.convert import Converter
from change_stream.errors import HistoryLost, WatchInterrupted
from change_stream.history import bridge, gap
from change_stream.outlet import Outlet
from change_stream.position_store import PositionStore
from change_stream.rejected import Rejected
from change_stream.resume import Position, ResumeRecord
from change_stream.settings import Settings
from change_stream.snapshot import Snapshot, send_through
from change_stream.source import Source
from change_stream.watch import Watch, closed, follow, opened

__all__ = ["Relay"]

T = TypeVar("T")

# After a refusal that will come again, so many events go one by one: the refused one is among the first.
_CAREFUL = 1000
_HOPELESS = frozenset({"bad_name", "forbidden", "unauthenticated"})


class _Began(NamedTuple):
    """Where a session began: its last sequence, the events stored by then, its position."""

    sequence: int
    stored: int
    position: Position


class Relay:
    """Publishes the changes of `collection` to `topic` for ever."""

    def __init__(
        self,
        cluster: Cluster,
        database: AsyncDatabase[dict[str, Any]],
        client: Client,
        settings: Settings,
        *,
        collection: str,
        topic: str,
    ) -> None:
        producer = settings.producer_of(collection)
        self.collection = collection
        self.topic = topic
        self.is_open = anyio.Event()
        self.outage = Outage(collection)
        self.source = Source(cluster, database, settings, collection)
        self.converter = Converter(
            collection,
            producer,
            mode=settings.json_mode,
            key_path=settings.key_of(collection),
            followers_path=settings.followers_of(collection),
            fields=settings.fields_of(collection),
            msg_bytes_max=settings.event_bytes_max - _ENVELOPE_BYTES_MAX,
        )
        self.rejected = Rejected(client, producer, topic)
        self.ahead = Ahead(settings.ahead, settings.ahead_bytes)
        self.outlet: Outlet | None = None
        self.confirmed = 0
        self.duplicates = 0
        self.failures = 0
        self._connects = 0
        self._refusal: Refusal | None = None
        self._began: _Began | None = None
        self._cluster = cluster
        self._client = client
        self._settings = settings
        self._store = PositionStore(client, topic, producer)
        self._is_copy_due = settings.snapshot == "always"
        self._is_reset_due = settings.reset
        self._is_stopping = False
        self._work = anyio.CancelScope()

    def stop(self) -> None:
        """Let `run` end as soon as what has been published is confirmed."""
        self._is_stopping = True
        self._work.cancel()

    async def run(self) -> None:
        """Publish until stopped; `is_open` is set when the position is stored and the stream is open."""
        backoff = Backoff()
        while not self._is_stopping:
            confirmed = self.confirmed
            try:
                await self._session()
            except BrokerError as error:
                if isinstance(error, Refusal) and error.code in _HOPELESS:
                    reason = self._settings.login().reason(error)
                    raise StartError(f"the broker refuses topic {self.topic}: {reason}") from error
                self._refusal = error if isinstance(error, Refusal) else None
                # Where a refused event lies among those behind it is not known; the topic tells where to go on.
                self.failures += 1
                logger().warning("publishing begins anew", topic=self.topic, reason=str(error))
                if self.confirmed > confirmed:
                    backoff.reset()
                await anyio.sleep(backoff.pause_s())

    async def _session(self) -> None:
        """Publish from where the topic was left. Raises what ends it before `stop` does."""
        self._connects = self._client.connects
        publisher = self._client.publisher(self.topic, window=self._settings.window, on_confirm=self._confirm)
        # Work can be cancelled anywhere, since the position is what the broker has; leaving the publisher confirms the rest.
        async with publisher:
            with anyio.CancelScope() as self._work:
                if not self._is_stopping:
                    await self._relay(publisher)

    async def _relay(self, publisher: Publisher) -> None:
        last = await self._store.load()
        record = await self._record("" if last is None else last.checkpoint or "")
        self.converter.begin_session()
        outlet = self.outlet = Outlet(
            publisher,
            self.converter,
            self.rejected,
            self._store,
            sequence=0 if last is None else last.sequence or 0,
            position=record.position,
            copied=record.copied,
            window_bytes=self._settings.window_bytes,
            careful=_CAREFUL if self._refusal is not None and not self._refusal.is_retryable else 0,
        )
        await self._tell_what_was_refused(outlet, record)
        try:
            self._reconcile(outlet, record)
            await self._copy(outlet)
            await self._stream(outlet)
        except HistoryLost as lost:
            await self._go_on_behind_gap(outlet, lost)

    async def _record(self, saved: str) -> ResumeRecord:
        """Read the stored record, or store a first one, so that nothing from now on can be missed."""
        if not saved or self._is_reset_due:
            record = await self._patiently(self.source.first_record)
            await self._store.save(record.text())
            self._is_reset_due = self._is_copy_due = False
            return record
        try:
            record = ResumeRecord.parse(saved)
        except ValueError as error:
            raise StartError(
                f"the checkpoint of {self._store.producer} on topic {self.topic} was not written by this program; "
                "choose another topic (--map) or give --reset"
            ) from error
        if record.cluster != self._cluster.id:
            raise StartError(
                f"topic {self.topic} holds {self.collection} of another MongoDB cluster ({record.cluster}, this one is "
                f"{self._cluster.id}); choose another topic (--map) or give --reset"
            )
        return record

    async def _tell_what_was_refused(self, outlet: Outlet, record: ResumeRecord) -> None:
        """Publish a gap event where the broker refused a change and took later ones, which cannot be undone."""
        stored = self.confirmed - self.duplicates
        began, self._began = self._began, _Began(outlet.sequence, stored, outlet.position)
        refusal, self._refusal = self._refusal, None
        if began is None or refusal is None:
            return
        missing = (stored - began.stored) - (outlet.sequence - began.sequence)
        if missing < 0:
            lost = gap(
                self.collection, began.position, outlet.position, f"the broker refused {-missing} changes: {refusal}"
            )
            logger().error("changes are lost", collection=self.collection, topic=self.topic, **lost.gap)
            await outlet.send_control(lost, record.text())

    def _reconcile(self, outlet: Outlet, record: ResumeRecord) -> None:
        """Where something else is watched now, begin with the record's time and pass over what is done.

        The token may not lie on the way of the changed stream.
        """
        token = record.position.token
        if record.scope != self.source.scope and token is not None:
            logger().info("what is watched has changed", collection=self.collection, topic=self.topic)
            outlet.skip_through = token["_data"]
            outlet.position = record.position.rewound()

    async def _copy(self, outlet: Outlet) -> None:
        """Run the snapshot that has begun or is due, if any."""
        source = self.source
        if outlet.copied is None and self._is_copy_due:
            now = await self._patiently(self._cluster.now)
            await send_through(outlet, source.watch(), source.stamp(), time=now, outage=self.outage)
            outlet.position, outlet.copied = Position(now), b""
            await outlet.save(source.stamp(outlet.copied)(now, None))
        self._is_copy_due = False
        if outlet.copied is None:
            return
        await self._patiently(source.prepare_copy)
        self.is_open.set()
        logger().info("copying what is there", collection=self.collection, topic=self.topic)
        await Snapshot(source.copier(), source.watch_through, source.stamp, self.outage).run(outlet)
        await outlet.save(source.stamp()(outlet.position.time, None))
        logger().info("copied what was there", collection=self.collection, topic=self.topic)

    async def _stream(self, outlet: Outlet) -> None:
        """Publish the changes behind the position for ever."""
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

    async def _fetch(self, watch: Watch, position: Position, ahead: Ahead) -> None:
        try:
            async with aclosing(follow(watch, position, self.outage)) as batches:
                async for batch in batches:
                    await ahead.put(batch)
        except (HistoryLost, StartError) as error:
            ahead.fail(error)
        finally:
            await closed(watch)

    async def _publish(self, outlet: Outlet, ahead: Ahead) -> None:
        stamp = self.source.stamp()
        heartbeat = self._settings.heartbeat
        next_heartbeat = anyio.current_time() + heartbeat
        while True:
            batch = await ahead.get()
            if batch.changes:
                await outlet.send_changes(batch.changes, stamp)
                next_heartbeat = anyio.current_time() + heartbeat
            elif anyio.current_time() >= next_heartbeat and not self.converter.is_between_fragments:
                # A quiet collection's token must not grow older than the oplog.
                await outlet.save(stamp(batch.position.time, batch.position.token))
                next_heartbeat = anyio.current_time() + heartbeat
            outlet.position = batch.position

    async def _go_on_behind_gap(self, outlet: Outlet, lost: HistoryLost) -> None:
        """Publish a gap event whose record is where the next session begins. Raises StartError by policy."""
        is_needed = self._settings.snapshot == "when_needed"
        policy = "resnapshot" if is_needed else self._settings.on_history_lost
        behind = await self._patiently(lambda: bridge(self._cluster, self.collection, outlet.position, lost, policy))
        logger().error("changes are lost", collection=self.collection, topic=self.topic, **behind.event.gap)
        stamp = self.source.stamp(b"" if behind.is_copy else outlet.copied)
        await outlet.send_control(behind.event, stamp(behind.position.time, None))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask MongoDB until it answers."""
        while True:
            try:
                return await ask()
            except WatchInterrupted as interruption:
                await self.outage.pause(interruption)

    def _confirm(self, receipt: Receipt) -> None:
        self.confirmed += receipt.count
        if receipt.is_duplicate:
            self.duplicates += 1
            # What was sent again on a new connection may be there already. Without one, somebody else has sent it.
            if self._connects == self._client.connects:
                self._connects = 0
                logger().error("another publisher sends the same changes; stop one of them", topic=self.topic)


# What an event's line has besides its message and checkpoint: names, and an id and a key of at most 256 characters, each of
# which may be written as six.
_ENVELOPE_BYTES_MAX = 4096
