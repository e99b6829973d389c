"""What keeps a broker's files in order beside its logs: the state's journal, its snapshots, and retention.

A broker on a full disk goes on: what must not be refused spends the reserve, what can be is refused until there is room
for the reserve again.
"""

import errno
import time
from collections.abc import Callable
from typing import Final

import anyio
import structlog
from anyio import to_thread

from broker.core import Broker
from broker.core.dead_letters import DEAD_LETTERS
from broker.core.restoration import restore
from broker.data_directory import DataDirectory
from broker.errors import Refusal, StartError
from broker.log import NO_ROOM
from broker.state import Record, State

__all__ = ["Keeper"]

JOURNAL_BYTES: Final = 4 << 20
FOLD_EVENTS: Final = 500_000
"""So many new events are read again at a start, at most, to find what their producers have sent."""
SYNC_EVERY_S: Final = 1.0
FORGET_EVERY_S: Final = 1.0

logger = structlog.stdlib.get_logger()


class Keeper:
    """Keeps the state of `broker` in `data`; `carry_out` is called when the core has left work."""

    def __init__(self, broker: Broker, data: DataDirectory, carry_out: Callable[[], None]) -> None:
        self._broker = broker
        self._data = data
        self._carry_out = carry_out
        self._is_late = False
        self._due, self._tried = anyio.Event(), anyio.Event()
        self._is_doubtful = False
        # Held while the state's files change, so that what is called synced is in a journal that was synced, or a snapshot.
        self._filing = anyio.Lock()
        self._folded_events = 0

    async def recover(self, topics: list[str]) -> None:
        """Make the broker stand where its folder says, with `topics` made where they are missing. Raises StartError."""
        began = time.monotonic()
        try:
            await to_thread.run_sync(self._recover, [*self._data.topics(), *topics, DEAD_LETTERS])
            await self.fold()
        except (OSError, Refusal) as error:
            reason = error.strerror if isinstance(error, OSError) else error.text
            raise StartError(f"cannot use {self._data.path} for the log: {reason}") from error
        events = sum(topic.visible - topic.log.earliest for topic in self._broker.topics.values())
        logger.info(
            "recovered", topics=len(self._broker.topics), events=events, seconds=round(time.monotonic() - began, 3)
        )

    def _recover(self, topics: list[str]) -> None:
        reserve = self._data.reserve
        try:
            reserve.take()
        except OSError as error:
            logger.warning("no room on the disk: publishing is refused until there is", reason=error.strerror)
        self._state = reserve.spend(State, self._data.path / "state")
        for name in topics:
            reserve.spend(self._broker.topic, name)
        restored = self._state.restore()
        if restored.damaged_lines or restored.set_aside:
            logger.warning("part of the state is damaged", lines=restored.damaged_lines, set_aside=restored.set_aside)
        for lost in reserve.spend(restore, self._broker, restored.records):
            logger.warning("a log ends before what was settled of it: going on behind", **lost._asdict())

    def keep(self, records: list[Record], *, is_awaited: bool) -> None:
        """Give records to the state; a disk that takes none must not end anything, so they wait for it in memory."""
        try:
            self._append(records)
        except OSError as error:
            if not self._is_late:
                logger.error("cannot write the state; going on, and trying again", reason=error.strerror)
            self._is_late = True
        else:
            self._is_late = False
        if is_awaited or self._state.journal_bytes > JOURNAL_BYTES:
            self._due.set()

    def _append(self, records: list[Record]) -> None:
        try:
            self._state.append(records)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._data.reserve.give_back():
                raise
            logger.warning("no room on the disk: the reserve goes to acks, publishing is refused until there is room")
            # Those that were not taken stand first in what is written next.
            self._state.append(())

    async def keep_journal(self) -> None:
        """Sync the journal when somebody waits for it, else once a second, and fold it when there is enough."""
        while True:
            with anyio.move_on_after(SYNC_EVERY_S):
                await self._due.wait()
            self._due = anyio.Event()
            tried, self._tried = self._tried, anyio.Event()
            try:
                await self._sync()
            except OSError as error:
                logger.error("cannot sync the state; trying again", reason=error.strerror)
            tried.set()
            if self._is_late or self._is_doubtful:
                # Trying again at once would keep the loop busy.
                await anyio.sleep(SYNC_EVERY_S)

    async def _sync(self) -> None:
        async with self._filing:
            # What the core has left until now is counted, so it must be in the journal.
            self._carry_out()
            number = self._broker.work.records_kept
            self.keep([], is_awaited=False)
            if self._is_late:
                return
            if self._is_doubtful:
                await self._fold()
            else:
                # After an fdatasync that failed, the next one may call good what is lost; only a snapshot can say it anew.
                self._is_doubtful = True
                await to_thread.run_sync(self._data.reserve.spend, self._state.sync)
            self._is_doubtful = False
            self._broker.records_synced(number)
            self._carry_out()
            if self._state.journal_bytes > JOURNAL_BYTES or self._events() - self._folded_events > FOLD_EVENTS:
                await self._fold()

    async def sync(self, number: int) -> None:
        """Wait until the disk has the state's record `number`. Raises OSError where it was tried and the disk has it not."""
        self._due.set()
        await self._tried.wait()
        if self._broker.synced_records < number:
            raise OSError(errno.EIO, "cannot write the state")

    async def forget_old(self) -> None:
        """Have the logs remove what retention says, once a second."""
        while True:
            await anyio.sleep(FORGET_EVERY_S)
            try:
                await self._forget_old(time.time_ns() // 1_000_000)
            except OSError as error:
                logger.error("cannot remove old events; trying again", reason=error.strerror)

    async def _forget_old(self, now_ms: int) -> None:
        for topic in list(self._broker.topics.values()):
            age_ms = topic.retention.age_ms
            if age_ms is not None and topic.log.last_timestamp < now_ms - age_ms:
                await to_thread.run_sync(topic.log.end_older, now_ms - age_ms)
        forgotten = self._broker.forget_old(now_ms)
        for topic, forgetting in forgotten.items():
            for name, events in forgetting.overtaken.items():
                logger.warning(
                    "retention took events that were not settled", topic=topic.name, subscription=name, events=events
                )
        if forgotten:
            # What producers have sent is known from their events, so it must be kept before these are gone.
            await self.fold()
        for topic, forgetting in forgotten.items():
            await to_thread.run_sync(topic.log.forget_below, forgetting.below)
            logger.info("removed old events", topic=topic.name, below=forgetting.below)

    async def fold(self) -> None:
        """Write the whole state as a snapshot. Raises OSError, and then the journals go on telling it."""
        async with self._filing:
            await self._fold()

    async def _fold(self) -> None:
        self._folded_events = self._events()
        generation = self._data.reserve.spend(self._state.begin_generation)
        records = self._broker.records()
        await to_thread.run_sync(self._data.reserve.spend, self._state.write_snapshot, generation, records)

    async def close(self) -> None:
        """Keep the state a last time; on a disk that takes no snapshot, the journals have it."""
        try:
            await self.fold()
        except OSError as error:
            logger.error("cannot write the state at the end", reason=error.strerror)
        self._state.close()

    def _events(self) -> int:
        return sum(topic.visible for topic in self._broker.topics.values())
