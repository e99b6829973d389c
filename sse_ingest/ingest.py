"""The ingester: sources, their pools, the writer, put together and ended in order.

    reader (thread) ─> inbox (bounded) ─> pool (processes) ─┐
    reader (thread) ─> inbox (bounded) ─> pool (processes) ─┴─> writer (batches) ─> MongoDB

Each arrow waits when the next place is full, so a MongoDB that is away stops the readers, and TCP their servers.
"""

import random
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import anyio
from msgspec import Struct
from pymongo.errors import PyMongoError

from broker.mongodb import reason_of
from broker.program import logger
from sse_ingest.account import Account
from sse_ingest.backoff import pause_s
from sse_ingest.batch import Entry, Reject, reject_document
from sse_ingest.handover import NoticeFound, RawEvent, Rejected, Reply, Scored
from sse_ingest.hashtags import HashtagCounts
from sse_ingest.inbox import Inbox
from sse_ingest.onlookers import Onlookers
from sse_ingest.pool import Pool, PoolSize
from sse_ingest.progress import Progress
from sse_ingest.reader import Reader
from sse_ingest.sources import Source
from sse_ingest.statistics import Timings
from sse_ingest.store import Store
from sse_ingest.worker import Job
from sse_ingest.writer import Item, Writer

__all__ = ["Ingest", "Line", "LineSettings", "Stored", "WriterSize"]

HASHTAGS_PAUSE_S = 1.0
HASHTAGS_PAUSE_MAX_S = 300.0
HASHTAGS_SHARE = 0.02
"""Of the time, for writing the hashtags' file, which takes seconds where there are millions of them."""

log = logger()


class LineSettings(Struct, frozen=True):
    """What every source's line has in common."""

    pool: PoolSize
    inbox_size: int
    scorer: Any
    emotion_values: dict[str, float] | None


class WriterSize(Struct, frozen=True):
    """How much is written at once, and how long it may wait."""

    batch: int = 200
    flush_every_s: float = 3.0


class Stored(Struct, frozen=True):
    """What there is of earlier times: the database, the hashtags' file, and the id behind which each source is read."""

    store: Store
    hashtags: HashtagCounts
    positions: dict[str, str]


class Line:
    """One source from its reader to the writer."""

    def __init__(self, source: Source, settings: LineSettings, ingest: "Ingest", position: str) -> None:
        job = Job(source.shape, source.origin, source.name, settings.scorer, settings.emotion_values)
        self.account = Account(progress=Progress(position))
        self.inbox = Inbox(settings.inbox_size)
        self.reader = Reader(source, self.inbox, self.account)
        self.pool = Pool(source.name, job, self.inbox, self._deliver, settings.pool)
        self._ingest = ingest
        self._kept = position

    async def run(self) -> None:
        """Work until the source has ended and everything of it is handed to the writer."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_inbox)
            await self.pool.run()
            tasks.cancel_scope.cancel()

    async def keep_position(self) -> None:
        """Let a restart go on from here; while MongoDB is away it would go on from earlier, which does no harm."""
        position = self.account.progress.position
        if position and position != self._kept:
            try:
                await self._ingest.store.keep_position(self.reader.source.name, position)
                self._kept = position
            except PyMongoError as error:
                log.debug("cannot keep the position", source=self.reader.source.name, reason=str(error))

    async def _end_inbox(self) -> None:
        await self.reader.done.wait()
        self.inbox.end()

    async def _deliver(self, worker: str, events: list[RawEvent], reply: Reply) -> None:
        self._ingest.worker_seconds.add(*reply.seconds)
        items: list[Item] = []
        for event, findings in zip(events, reply.findings, strict=True):
            parts = list(self._items(event, findings))
            self.account.progress.expect(event.number, len(parts))
            items.extend(parts)
        if len(self._ingest.onlookers):
            for item in items:
                if isinstance(item, Entry):
                    self._ingest.onlookers.show(worker, item.tweet.text)
        if items:
            await self._ingest.writer.put(items)

    def _items(self, event: RawEvent, findings: list[Scored | NoticeFound | Rejected]) -> Iterable[Item]:
        self.account.nested += len(findings) - 1
        for finding in findings:
            match finding:
                case Scored():
                    yield Entry(finding, self.account, event.number)
                case NoticeFound():
                    self.account.note(finding.name)
                case Rejected():
                    raw = event.text if finding.raw is None else finding.raw
                    yield Reject(
                        reject_document(self.reader.source.name, raw, finding.error), self.account, event.number
                    )


class Ingest:
    """All of it. Made on the event loop; `start` and `pause` begin and end the reading, `run` serves until the end."""

    def __init__(self, sources: list[Source], settings: LineSettings, writer: WriterSize, stored: Stored) -> None:
        store, hashtags = stored.store, stored.hashtags
        self.store = store
        self.hashtags = hashtags
        self.onlookers = Onlookers()
        self.worker_seconds = Timings()
        self.writer = Writer(store, writer.batch, writer.flush_every_s, self._count_hashtags)
        self.lines = [Line(source, settings, self, stored.positions.get(source.name, "")) for source in sources]
        self.is_started = False
        self._began_at = datetime.now(UTC)
        self._counting = anyio.CancelScope()
        self._count_failures = 0
        self._hashtags_due = 0.0
        self._is_file_lost = False

    def start(self) -> None:
        """Read all sources, each from behind what was read of it last."""
        if not self.is_started:
            log.info("ingesting", sources=[line.reader.source.name for line in self.lines])
        self.is_started = True
        for line in self.lines:
            line.reader.start()

    async def pause(self) -> None:
        """Stop reading; what has been read is scored and written."""
        self.is_started = False
        async with anyio.create_task_group() as tasks:
            for line in self.lines:
                tasks.start_soon(line.reader.stop)

    async def run(self) -> None:
        """Work until every source has ended and everything is written."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._count_stored_hashtags)
            async with anyio.create_task_group() as writing:
                writing.start_soon(self.writer.run)
                async with anyio.create_task_group() as lines:
                    for line in self.lines:
                        lines.start_soon(line.run)
                self.writer.end()
            if self._count_failures:
                self._counting.cancel()

    async def drain(self) -> None:
        """Read no more, and let `run` end once everything that has been read is written."""
        self._counting.cancel()
        await self.pause()
        for line in self.lines:
            line.inbox.end()

    async def keep(self) -> None:
        """Write down what is not part of a batch: how far the sources are settled, and now and then the hashtags."""
        if anyio.current_time() >= self._hashtags_due:
            began = anyio.current_time()
            await self.write_hashtags()
            self._hashtags_due = began + (anyio.current_time() - began) / HASHTAGS_SHARE
        for line in self.lines:
            await line.keep_position()

    async def write_hashtags(self) -> None:
        """Write the hashtags' file; that it cannot be written is told once."""
        try:
            await anyio.to_thread.run_sync(self.hashtags.write)
            self._is_file_lost = False
        except OSError as error:
            if not self._is_file_lost:
                log.warning("cannot write the hashtags", reason=str(error))
            self._is_file_lost = True

    @property
    def has_failed_sources(self) -> bool:
        """Whether a source could not be read at all."""
        return any(line.reader.has_failed for line in self.lines)

    def report(self) -> None:
        """Log the account of each source."""
        for line in self.lines:
            others = {"crashes": line.pool.crashes, "gaps": line.reader.state.gaps}
            log.info("account", source=line.reader.source.name, **line.account.summary(), **others)
            if line.account.in_flight:
                log.error(
                    "not everything that was read is written",
                    source=line.reader.source.name,
                    events=line.account.in_flight,
                )

    async def _count_stored_hashtags(self) -> None:
        with self._counting:
            while not self.hashtags.is_whole:
                try:
                    self.hashtags.add_stored(await self.store.hashtags(self._began_at))
                except PyMongoError as error:
                    if not self._count_failures:
                        log.warning("cannot count the stored hashtags, trying on", reason=reason_of(error))
                    self._count_failures += 1
                    await anyio.sleep(
                        pause_s(self._count_failures, HASHTAGS_PAUSE_S, HASHTAGS_PAUSE_MAX_S, random.random)
                    )

    def _count_hashtags(self, entry: Entry) -> None:
        self.hashtags.add(entry.tweet.hashtags)
