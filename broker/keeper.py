"""The keeper: it writes the state's journal and snapshots, and carries out retention.

A broker continues on a full disk. Records that must not be refused, such as acks, use the reserve. Publishing is refused
until there is room for the reserve again.
"""

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
import structlog
from anyio import to_thread

from broker.core import Broker
from broker.core.dates import HELD_MS
from broker.core.delivery.dead_letters import DEAD_LETTERS
from broker.core.topic.schemas import UnusableSchema
from broker.data_directory import DataDirectory
from broker.journal import Journal
from broker.journal.records import Record
from broker.log import NO_ROOM
from tweetwire.files import why
from tweetwire.protocol.errors import Refusal, StartError

__all__ = ["Keeper"]

JOURNAL_BYTES: Final = 4 << 20
FOLD_EVENTS: Final = 500_000
"""A snapshot is due after this many new events, since a start reads them again to restore their producers."""
SYNC_EVERY_S: Final = 1.0
FORGET_EVERY_S: Final = 1.0
TOPICS_LOGGED: Final = 10
UNTAKEN_BYTES_MAX: Final = 8 << 20
"""The most bytes of records that wait in memory for a full disk. Beyond this limit they are dropped, and a snapshot is due."""

logger = structlog.stdlib.get_logger()


class Keeper:
    """Stores the state of `broker` in the folder `data`."""

    def __init__(self, broker: Broker, data: DataDirectory, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._data = data
        self._now_ms = now_ms
        self._is_late = False
        self._due, self._tried = anyio.Event(), anyio.Event()
        self._is_doubtful = False
        # Held while the state's files change, so that records reported as synced are in a synced journal or in a snapshot.
        self._filing = anyio.Lock()
        self._folded_events = 0

    async def recover(self, topics: list[str]) -> None:
        """Restore the broker from its folder, and create the `topics` that are missing. Raises StartError."""
        began = time.monotonic()
        try:
            await to_thread.run_sync(self._recover, topics)
            await self.fold()
        except (OSError, Refusal) as error:
            reason = why(error) if isinstance(error, OSError) else error.text
            raise StartError(f"cannot use the data directory {self._data.path}: {reason}") from error
        self._warn_of_dates()
        events = sum(topic.visible - topic.log.earliest for topic in self._broker.topics.values())
        logger.info(
            "recovered", topics=len(self._broker.topics), events=events, seconds=round(time.monotonic() - began, 3)
        )

    def _warn_of_dates(self) -> None:
        """Log the topics whose newest event is dated in the future: the clock is wrong now, or was wrong when it was stored."""
        now_ms = self._now_ms()
        ahead = [topic.name for topic in self._broker.topics.values() if topic.log.last_timestamp > now_ms + HELD_MS]
        if ahead:
            logger.warning(
                "events are dated in the future; new events get the date of the clock as it is now",
                topics=len(ahead),
                first=sorted(ahead)[:TOPICS_LOGGED],
            )

    def _recover(self, topics: list[str]) -> None:
        reserve = self._data.reserve
        try:
            reserve.take()
        except OSError as error:
            logger.warning("no room on the disk; publishing is refused until there is", reason=why(error))
            self._note_room()
        self._broker.set_identity(reserve.spend(self._data.identity))
        self._state = reserve.spend(Journal, self._data.path / "state")
        for name in self._topics_to_restore(topics):
            reserve.spend(self._broker.open_topic, name)
        restored = self._state.restore()
        if restored.damaged_lines or restored.set_aside:
            logger.warning("part of the state is damaged", lines=restored.damaged_lines, set_aside=restored.set_aside)
        for lost in reserve.spend(self._broker.restore, restored.records, self._now_ms()):
            logger.warning(
                "settled events are missing at the end of a log; new events get the offsets after them",
                **lost._asdict(),
            )
        for name in topics:
            reserve.spend(self._broker.open_topic, name)
        for topic in self._broker.topics.values():
            schema = topic.documentation.schema
            if isinstance(schema, UnusableSchema):
                logger.error("cannot use a stored schema; set another one", topic=topic.name, reason=schema.reason)

    def _topics_to_restore(self, topics: list[str]) -> list[str]:
        """Return the topics that the journal must restore.

        A missing one of `topics` is made after that. If a drop ended half-way, the journal has the old topic's subscriptions.
        """
        known = [*self._data.topics(), DEAD_LETTERS]
        # Logs in memory leave no folders.
        return [*known, *topics] if self._data.durability == "memory" else known

    def keep(self, records: list[Record], *, is_awaited: bool) -> None:
        """Append records to the journal. If the disk refuses them, they wait in memory, so that the broker continues."""
        try:
            self._append(records)
        except OSError as error:
            if not self._is_late:
                logger.error("cannot write the state; retrying", reason=why(error))
            self._is_late = True
            self._broker.set_full_disk(why(error))
            self._bound_untaken()
        else:
            self._is_late = False
            self._note_room()
        if is_awaited or self._state.journal_bytes > JOURNAL_BYTES:
            self._due.set()

    def _append(self, records: list[Record]) -> None:
        try:
            self._state.append(records)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._data.reserve.give_back():
                raise
            logger.warning("no room on the disk; acks use the reserve, publishing is refused until there is room")
            # Writes the records that the disk refused, which the journal still holds in memory.
            self._state.append(())

    def _bound_untaken(self) -> None:
        """Drop the records in memory if there are too many, since a disk may be full for days while acks arrive."""
        if self._state.untaken_bytes > UNTAKEN_BYTES_MAX:
            self._state.drop_untaken()
            self._is_doubtful = True

    def _note_room(self) -> None:
        """While the reserve is given up, refuse the writes that can be refused, such as publishing."""
        self._broker.set_full_disk("" if self._data.reserve.is_held else "no room is left on the disk")

    async def _take_reserve(self) -> None:
        """Take the reserve back as soon as there is room, even if no client publishes."""
        if not self._data.reserve.is_held:
            with suppress(OSError):
                await to_thread.run_sync(self._data.reserve.take)
                self._note_room()

    async def journal_is_due(self) -> None:
        """Wait until a client needs the journal to be synced, for at most a second."""
        if self._is_late or self._is_doubtful:
            # An immediate retry would keep the event loop busy.
            await anyio.sleep(SYNC_EVERY_S)
        with anyio.move_on_after(SYNC_EVERY_S):
            await self._due.wait()
        self._due = anyio.Event()

    async def sync_journal(self) -> None:
        """Sync all records to the disk. An error is logged, and the next call retries."""
        tried, self._tried = self._tried, anyio.Event()
        try:
            await self._sync()
        except OSError as error:
            logger.error("cannot sync the state; retrying", reason=why(error))
        tried.set()

    async def fold_if_large(self) -> None:
        """Write a snapshot if the journal is large, or if a start would have to read many events again."""
        # Topics may have been dropped since the last snapshot.
        self._folded_events = min(self._folded_events, self._events())
        if self._state.journal_bytes > JOURNAL_BYTES or self._events() - self._folded_events > FOLD_EVENTS:
            try:
                await self.fold()
            except OSError as error:
                logger.error("cannot sync the state; retrying", reason=why(error))

    async def _sync(self) -> None:
        async with self._filing:
            # `number` counts the records that the core has left until now, so append them to the journal first.
            work = self._broker.work
            number = work.records_kept
            records, is_awaited = work.take_records()
            self.keep(records, is_awaited=is_awaited)
            if self._is_late:
                return
            if self._is_doubtful:
                await self._fold()
            else:
                # After a failed fdatasync, the next one may report lost records as written. So a snapshot must follow.
                self._is_doubtful = True
                await to_thread.run_sync(self._data.reserve.spend, self._state.sync)
            self._is_doubtful = False
            await self._take_reserve()
            self._broker.note_records_synced(number)

    async def sync(self, number: int) -> None:
        """Wait until the state's record `number` is on the disk. Raises OSError if the next sync fails."""
        self._due.set()
        await self._tried.wait()
        if self._broker.synced_records < number:
            raise OSError(errno.EIO, "cannot write the state")

    async def forget_old(self) -> None:
        """Remove old events as each topic's retention says, once a second, forever."""
        while True:
            await anyio.sleep(FORGET_EVERY_S)
            try:
                await self._forget_old(self._now_ms())
            except OSError as error:
                logger.error("cannot remove old events; retrying", reason=why(error))

    async def _forget_old(self, now_ms: int) -> None:
        for topic in list(self._broker.topics.values()):
            if topic.log.hidden_below == topic.log.next and topic.log.size:
                await to_thread.run_sync(topic.log.end_hidden)
            age_ms = topic.retention.age_ms
            if age_ms is not None and topic.log.last_arrived < now_ms - age_ms:
                await to_thread.run_sync(topic.log.end_older, now_ms - age_ms)
        forgotten = self._broker.forget_old(now_ms)
        for topic, forgetting in forgotten.items():
            for name, events in forgetting.overtaken.items():
                logger.warning("retention removed unsettled events", topic=topic.name, subscription=name, events=events)
            for name, events in forgetting.unmarked.items():
                logger.warning("retention removed events above a mark", topic=topic.name, mark=name, events=events)
        if forgotten:
            # A start restores producers from their events, so a snapshot must hold the producers before events are removed.
            await self.fold()
        for topic, forgetting in forgotten.items():
            await to_thread.run_sync(topic.log.forget_below, forgetting.below)
            logger.info("removed old events", topic=topic.name, below=forgetting.below)

    async def fold(self) -> None:
        """Write the whole state as a snapshot. Raises OSError; the journals then still hold the state."""
        async with self._filing:
            await self._fold()

    async def _fold(self) -> None:
        self._folded_events = self._events()
        generation = self._data.reserve.spend(self._state.begin_generation)
        records = self._broker.records()
        await to_thread.run_sync(self._data.reserve.spend, self._state.write_snapshot, generation, records)

    async def close(self) -> None:
        """Write a last snapshot and close the files. If the disk refuses the snapshot, the journals still hold the state."""
        try:
            await self.fold()
        except OSError as error:
            logger.error("cannot write the state at the end", reason=why(error))
        self._state.close()

    def _events(self) -> int:
        return sum(topic.visible for topic in self._broker.topics.values())
