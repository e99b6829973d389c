"""One collection → one topic.

What holds at every moment, and makes each change appear once in the topic:

- The events of a producer carry the sequences 1, 2, 3 … in the order of MongoDB's changes, and each carries the resume
  record of the place behind its change. The broker stores both in one write, so its last event *is* the position.
- A session begins by asking the broker for that position and ends at the first failure that neither the broker's client nor
  the change stream repairs by itself. Whatever was on its way then is either in the topic, and the next session begins
  behind it, or is not, and it is read from MongoDB again.
- A checkpoint without an event moves only when everything before it is confirmed.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import anyio
from anyio.abc import TaskStatus
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.database import AsyncDatabase

from broker import BrokerError, Client, Event, Publisher, Receipt
from broker.errors import StartError
from broker.program import logger
from change_stream.ahead import Ahead
from change_stream.backoff import Backoff
from change_stream.convert import Converter, Unconvertible
from change_stream.errors import HistoryLost, OversizeChange, WatchInterrupted
from change_stream.position_store import PositionStore
from change_stream.rejected import Rejected
from change_stream.resume import Position, ResumeRecord, Stamp, scope_of
from change_stream.settings import Settings
from change_stream.watch import Batch, Watch, follow

__all__ = ["Relay"]

# Conversion holds the loop for as long as a slice takes: a few milliseconds.
_SLICE = 200


class Relay:
    """Publishes the changes of `collection` to `topic` for ever; `cluster` is the id of the replica set."""

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        client: Client,
        settings: Settings,
        *,
        collection: str,
        topic: str,
        cluster: str,
    ) -> None:
        producer = f"cdc.{database.name}.{collection}"
        stage = settings.stage()
        self.collection = collection
        self.topic = topic
        self.confirmed = 0
        self._client = client
        self._settings = settings
        self._cluster = cluster
        self._scope = scope_of(database.name, collection, [], stage)
        self._stamp = Stamp(cluster, self._scope)
        self._store = PositionStore(client, topic, producer)
        self._rejected = Rejected(client, producer, topic)
        self._converter = Converter(
            collection,
            producer,
            mode=settings.json_mode,
            key_path=settings.key_of(collection),
            followers_path=settings.followers_of(collection),
        )
        self._watch = Watch(
            database,
            collection,
            stage=stage,
            pipeline=[],
            batch_size=settings.batch_size,
            await_ms=min(1000, int(settings.heartbeat * 1000)),
        )
        self._sequence = 0
        self._saved = ""
        self._skip_through = ""
        self._ahead: Ahead | None = None
        self._is_stopping = False

    def stop(self) -> None:
        """Let `run` end as soon as what has been published is confirmed."""
        self._is_stopping = True
        if self._ahead is not None:
            self._ahead.close()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Publish until stopped; reports started when the position is known and the stream is open."""
        backoff = Backoff()
        first = await self._open()
        task_status.started()
        while not self._is_stopping:
            confirmed = self.confirmed
            failure = await self._session(first)
            if self.confirmed > confirmed:
                backoff.reset()
            if failure is not None:
                logger().warning("the publisher begins anew", topic=self.topic, reason=str(failure))
                await anyio.sleep(backoff.pause_s())
                first = await self._open()

    async def _open(self) -> Batch:
        """Open the stream where the broker says that it was left, however long that takes."""
        backoff = Backoff()
        while True:
            try:
                return await self._resume()
            except WatchInterrupted as interruption:
                self._interrupted(interruption)
                await anyio.sleep(backoff.pause_s())
            except HistoryLost as lost:
                raise StartError(
                    f"MongoDB's history no longer reaches back to where topic {self.topic} was left ({lost})"
                ) from lost

    async def _resume(self) -> Batch:
        last = await self._store.load()
        self._sequence = 0 if last is None else last.sequence or 0
        self._saved = "" if last is None else last.checkpoint or ""
        position = self._position()
        batch = await self._watch.open(position)
        if position is None:
            # Before anything is reported ready the position is stored, so that no change from now on can be missed.
            await self._save(batch.position)
        return batch

    def _position(self) -> Position | None:
        self._skip_through = ""
        if not self._saved:
            return None
        try:
            record = ResumeRecord.parse(self._saved)
        except ValueError as error:
            raise StartError(
                f"the checkpoint of {self._store.producer} on topic {self.topic} was not written by this program; "
                "choose another topic: --map"
            ) from error
        if record.cluster != self._cluster:
            raise StartError(
                f"topic {self.topic} holds {self.collection} of another MongoDB cluster ({record.cluster}, this one is "
                f"{self._cluster}); choose another topic (--map) or go back to that cluster"
            )
        if record.scope == self._scope:
            return record.position
        token = record.position.token
        if token is None:
            return record.position
        # The token may not lie on the way of what is watched now: begin with its cluster time and pass over what is done.
        self._skip_through = token["_data"]
        return record.position.rewound()

    async def _session(self, first: Batch) -> Exception | None:
        """Fetch and publish until stopped or until a failure, which is returned."""
        ahead = self._ahead = Ahead(self._settings.ahead, self._settings.ahead_bytes)
        if self._is_stopping:
            return None
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._fetch, first, ahead)
            try:
                await self._publish(ahead)
            except (BrokerError, HistoryLost, OversizeChange) as error:
                failure = error
            tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            await self._watch.close()
        return failure

    async def _fetch(self, first: Batch, ahead: Ahead) -> None:
        try:
            async for batch in follow(self._watch, first, self._interrupted):
                await ahead.put(batch)
        except (HistoryLost, OversizeChange, StartError) as error:
            ahead.fail(error)

    async def _publish(self, ahead: Ahead) -> None:
        async with self._client.publisher(
            self.topic, window=self._settings.window, on_confirm=self._confirm
        ) as publisher:
            next_heartbeat = anyio.current_time() + self._settings.heartbeat
            while (batch := await ahead.get()) is not None:
                for changes in _slices(batch.changes):
                    await publisher.publish_many(await self._convert(changes))
                    await anyio.lowlevel.checkpoint()
                    if self._is_stopping:
                        break
                if batch.changes:
                    next_heartbeat = anyio.current_time() + self._settings.heartbeat
                elif anyio.current_time() >= next_heartbeat:
                    next_heartbeat = anyio.current_time() + self._settings.heartbeat
                    await self._beat(publisher, batch.position)

    async def _convert(self, changes: Sequence[RawBSONDocument]) -> list[Event]:
        events = []
        for raw in changes:
            if self._skip_through:
                if raw["_id"]["_data"] <= self._skip_through:
                    continue
                self._skip_through = ""
            try:
                event = self._converter.change(raw, self._sequence + 1, self._stamp)
            except Unconvertible as error:
                await self._rejected.keep(raw, raw["_id"]["_data"], error)
                continue
            self._sequence += 1
            events.append(event)
        return events

    async def _beat(self, publisher: Publisher, position: Position) -> None:
        """Store the position of a quiet collection, so that its token does not grow older than the oplog."""
        await publisher.flush()
        await self._save(position)

    async def _save(self, position: Position) -> None:
        checkpoint = self._stamp(position.time, position.token)
        if checkpoint != self._saved:
            await self._store.save(checkpoint)
            self._saved = checkpoint

    def _confirm(self, receipt: Receipt) -> None:
        self.confirmed += receipt.count

    def _interrupted(self, interruption: WatchInterrupted) -> None:
        logger().warning("MongoDB is away, trying again", collection=self.collection, reason=str(interruption))


def _slices(changes: Sequence[RawBSONDocument]) -> Iterator[Sequence[RawBSONDocument]]:
    for start in range(0, len(changes), _SLICE):
        yield changes[start : start + _SLICE]
