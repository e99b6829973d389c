"""Publish the events of one session to one topic, numbered and in order."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from anyio.lowlevel import checkpoint
from bson.raw_bson import RawBSONDocument

from change_stream.convert import Converter, Replaced, Unconvertible
from change_stream.elements import member_of
from change_stream.position_store import PositionStore
from change_stream.rejected import RejectedChanges
from change_stream.resume import CopyProgress, Stamp, StreamPosition, token_time
from change_stream.watch import ChangeBatch
from tweetwire import Event, Publisher, Refusal, StoredEvent

__all__ = ["ChangeOutlet"]

# The event loop is blocked while a slice is converted, which takes a few milliseconds.
_SLICE = 200
_SLICE_BYTES = 2 << 20

Convert = Callable[[RawBSONDocument, int], Event | None]
Text = Callable[[RawBSONDocument], str]
Hold = Callable[[], Awaitable[None]]


class ChangeOutlet:
    """Publishes events to one topic, with sequences that follow `sequence`.

    The caller keeps `position` and `copy` at the position after the last event sent. While `skip_through` is set, changes
    up to that token are skipped.

    Args:
        sequence: the sequence of the producer's last event.
        position: the position of that event in MongoDB's history.
        copy: how far a snapshot is, None if no snapshot runs.
        window_bytes: approximate limit of unconfirmed message bytes, besides the publisher's limit of their number.
        careful: the number of events that are published one by one at the beginning.
        hold: called before each write to the topic; it raises Refusal ``fenced`` if another publisher leads.
    """

    def __init__(
        self,
        publisher: Publisher,
        converter: Converter,
        rejected: RejectedChanges,
        store: PositionStore,
        *,
        sequence: int,
        position: StreamPosition,
        copy: CopyProgress | None,
        window_bytes: int = 32 << 20,
        careful: int = 0,
        hold: Hold,
    ) -> None:
        self.sequence = sequence
        self.skip_through = ""
        self.position = position
        self.copy = copy
        self._publisher = publisher
        self._converter = converter
        self._rejected = rejected
        self._store = store
        self._window_bytes = window_bytes
        self._careful = careful
        self._hold = hold
        self._unflushed_bytes = 0
        self._saved = ""

    async def send_batch(self, batch: ChangeBatch, stamp: Stamp) -> None:
        """Publish the changes of a batch, or keep the one for which the user's stages failed.

        Raises the errors of `send_changes`.
        """
        if batch.unreadable is None:
            await self.send_changes(batch.changes, stamp)
            return
        for change in batch.changes:
            await self._reject(self._converter.refused(batch.unreadable, change), _text_behind(change, stamp))

    async def send_changes(self, changes: Sequence[RawBSONDocument], stamp: Stamp) -> None:
        """Publish changes as MongoDB sent them.

        Raises Refusal, and CollectionReplaced after the event that reports it.
        """
        if self.skip_through:
            changes = self._behind_skipped(changes)
        convert = self._converter.change
        await self._send(
            changes,
            lambda raw, sequence: convert(raw, sequence, stamp),
            lambda raw: _text_behind(raw, stamp),
        )

    async def send_documents(
        self, documents: Sequence[RawBSONDocument], position: StreamPosition, stamp_of: Callable[[CopyProgress], Stamp]
    ) -> None:
        """Publish documents as they were at `position`. `stamp_of` returns the stamp for the progress of the copy."""
        copy = self.copy or CopyProgress()

        def text(_: RawBSONDocument) -> str:
            return stamp_of(copy)(position.time, None)

        def convert(raw: RawBSONDocument, sequence: int) -> Event:
            nonlocal copy
            self.copy = copy = copy.behind(raw)
            return self._converter.snapshot(raw, position, sequence, text(raw), copy.id)

        await self._send(documents, convert, text)

    async def send_vanished(self, events: Sequence[StoredEvent], stamp_of: Callable[[CopyProgress], Stamp]) -> None:
        """Publish the deletes of documents that a copy did not find. `events` are the last events of these documents."""
        copy = self.copy or CopyProgress()
        text = stamp_of(copy)(self.position.time, None)
        for event in events:
            self.sequence += 1
            await self._publish([self._converter.vanished(event, self.position, self.sequence, text, copy.id)], 0)

    async def flush(self) -> None:
        """Wait until all events are confirmed."""
        await self._publisher.flush()
        self._unflushed_bytes = 0

    async def send_control(self, msg: Any, text: str) -> None:
        """Publish an event about the collection as a whole. `text` is the resume record that is stored with it."""
        await self._hold()
        self.sequence += 1
        await self._publisher.publish(self._converter.control(msg, self.sequence, text))

    async def save(self, text: str) -> None:
        """Wait until all events are confirmed, and then move the checkpoint without an event."""
        await self.flush()
        if text != self._saved:
            await self._hold()
            await self._store.save(text)
            self._saved = text

    def _behind_skipped(self, changes: Sequence[RawBSONDocument]) -> Sequence[RawBSONDocument]:
        # Tokens of one cluster sort as text, by time first.
        behind = [change for change in changes if member_of(change, "_id")["_data"] > self.skip_through]
        if behind:
            self.skip_through = ""
        return behind

    async def _send(self, documents: Sequence[RawBSONDocument], convert: Convert, text: Text) -> None:
        events: list[Event] = []
        size = 0
        for raw in documents:
            try:
                event = convert(raw, self.sequence + 1)
            except Unconvertible as error:
                await self._publish(events, size)
                events, size = [], 0
                await self._reject(error, text(raw))
                continue
            except Replaced as replaced:
                await self._end_with(replaced, events, size)
                raise replaced.lost from replaced
            if event is None:
                continue
            self.sequence += 1
            events.append(event)
            size += len(event.msg)
            if len(events) == _SLICE or size >= _SLICE_BYTES:
                await self._publish(events, size)
                events, size = [], 0
        await self._publish(events, size)

    async def _reject(self, error: Unconvertible, text: str) -> None:
        """Keep a change that cannot become an event, and move the position past it."""
        await self._rejected.keep(error, text)
        await self.save(text)

    async def _end_with(self, replaced: Replaced, events: list[Event], size: int) -> None:
        """Publish the events before the collection was replaced, and then the event that reports the replacement."""
        self.sequence += 1
        await self._publish([*events, replaced.event], size)
        await self._publisher.flush()
        self.position = replaced.position

    async def _publish(self, events: list[Event], size: int) -> None:
        await self._hold()
        if self._careful > 0:
            self._careful -= len(events)
            await self._publish_singly(events)
        else:
            await self._publisher.publish_many(events)
        self._unflushed_bytes += size
        if self._unflushed_bytes >= self._window_bytes:
            await self._publisher.flush()
            self._unflushed_bytes = 0
        await checkpoint()

    async def _publish_singly(self, events: list[Event]) -> None:
        """Publish one event at a time; an event that the broker will never accept is kept in the topic of rejected changes."""
        self.sequence -= len(events)
        for event in events:
            event.sequence = self.sequence + 1
            try:
                await self._publisher.publish(event)
                await self._publisher.flush()
                self.sequence += 1
            except Refusal as refusal:
                if refusal.is_retryable:
                    raise
                behind = str(event.checkpoint)
                await self._reject(Unconvertible(f"the broker refuses it: {refusal}", bytes(event.msg)), behind)


def _text_behind(change: RawBSONDocument, stamp: Stamp) -> str:
    """Return the resume record after a change, whose other members may be invalid BSON."""
    token = dict(member_of(change, "_id"))
    return stamp(token_time(token), token)
