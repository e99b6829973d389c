"""The ingester: connects sources, worker pools and the writer, and ends them in order.

    reader (thread) ─> inbox (bounded) ─> pool (processes) ─┐
    reader (thread) ─> inbox (bounded) ─> pool (processes) ─┴─> writer (batches) ─> MongoDB

Each step waits while the next one is full. So during an outage of MongoDB the readers stop, and TCP stops their servers.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import anyio
from msgspec import Struct
from pymongo.errors import PyMongoError

from sse_ingest.account import SourceAccount
from sse_ingest.batch import BatchEntry, RejectedEntry, TweetEntry, rejected_document
from sse_ingest.found import Notice, Rejected
from sse_ingest.handover import Outcome, RawEvent, Reply, ScoredTweet
from sse_ingest.hashtags import HashtagCounts
from sse_ingest.inbox import Inbox
from sse_ingest.onlookers import Onlookers
from sse_ingest.pool import Pool, PoolSize
from sse_ingest.progress import Progress
from sse_ingest.reader import SourceReader
from sse_ingest.sources import Source
from sse_ingest.statistics import Timings
from sse_ingest.store import Store
from sse_ingest.worker import WorkerJob
from sse_ingest.writer import Writer
from tweetwire.backoff import Backoff
from tweetwire.runtime.mongodb import reason_of
from tweetwire.runtime.program import logger

__all__ = ["Ingest", "Line", "LineSettings", "StoredState", "WriterSize"]

HASHTAGS_SHARE = 0.02
"""The largest share of time for writing the file of hashtags. With millions of hashtags, a write takes seconds."""

log = logger()


class LineSettings(Struct, frozen=True):
    """The settings that all sources share."""

    pool: PoolSize
    inbox_size: int
    scorer: Any
    emotion_values: dict[str, float] | None


class WriterSize(Struct, frozen=True):
    """The size of a batch, and how long a tweet may wait for its batch to fill."""

    batch: int = 200
    flush_every_s: float = 3.0


class StoredState(Struct, frozen=True):
    """The state of earlier runs: the database, the hashtag counts, and the id after which to read each source."""

    store: Store
    hashtags: HashtagCounts
    positions: dict[str, str]


class Line:
    """One source, from its reader to the writer."""

    def __init__(self, source: Source, settings: LineSettings, ingest: "Ingest", position: str) -> None:
        job = WorkerJob(source.shape, source.origin, source.name, settings.scorer, settings.emotion_values)
        self.account = SourceAccount(progress=Progress(position))
        self.inbox = Inbox(settings.inbox_size)
        self.reader = SourceReader(source, self.inbox, self.account)
        self.pool = Pool(source.name, job, self.inbox, self._deliver, settings.pool)
        self._ingest = ingest
        self._kept = position

    async def run(self) -> None:
        """Work until the source has ended and the writer has received everything from it."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_inbox)
            await self.pool.run()
            tasks.cancel_scope.cancel()

    async def keep_position(self) -> None:
        """Store the source's position for a restart.

        A failure is harmless: a restart then begins earlier and skips the tweets that are already stored.
        """
        position = self.account.progress.position
        if position and position != self._kept:
            try:
                await self._ingest.store.save_position(self.reader.source.name, position)
                self._kept = position
            except PyMongoError as error:
                log.debug("position could not be stored", source=self.reader.source.name, reason=str(error))

    async def _end_inbox(self) -> None:
        await self.reader.done.wait()
        self.inbox.end_events()

    async def _deliver(self, worker: str, events: list[RawEvent], reply: Reply) -> None:
        self._ingest.worker_seconds.add_seconds(*reply.seconds)
        entries: list[BatchEntry] = []
        for event, outcomes in zip(events, reply.outcomes, strict=True):
            parts = list(self._entries(event, outcomes))
            self.account.progress.expect(event.number, len(parts))
            entries.extend(parts)
        if len(self._ingest.onlookers):
            for entry in entries:
                if isinstance(entry, TweetEntry):
                    self._ingest.onlookers.show_tweet(worker, entry.tweet.text)
        if entries:
            await self._ingest.writer.put_entries(entries)

    def _entries(self, event: RawEvent, outcomes: list[Outcome]) -> Iterable[BatchEntry]:
        self.account.nested += len(outcomes) - 1
        for outcome in outcomes:
            match outcome:
                case ScoredTweet():
                    yield TweetEntry(outcome, self.account, event.number)
                case Notice():
                    self.account.note(outcome.name)
                case Rejected():
                    raw = event.text if outcome.raw is None else outcome.raw
                    yield RejectedEntry(
                        rejected_document(self.reader.source.name, raw, outcome.error), self.account, event.number
                    )


class Ingest:
    """The whole ingester. Made on the event loop; `start` and `pause` control the reading, `run` works until the end."""

    def __init__(self, sources: list[Source], settings: LineSettings, writer: WriterSize, stored: StoredState) -> None:
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
        self._counting_backoff = Backoff(first_s=1.0, max_s=300.0)
        self._hashtags_due = 0.0
        self._is_file_lost = False

    def start(self) -> None:
        """Read all sources, each after the last event that was read of it."""
        if not self.is_started:
            log.info("ingesting", sources=[line.reader.source.name for line in self.lines])
        self.is_started = True
        for line in self.lines:
            line.reader.start()

    async def pause(self) -> None:
        """Stop reading; events that were read are still scored and written."""
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
                self.writer.end_entries()
            if self._counting_backoff.failures:
                self._counting.cancel()

    async def drain(self) -> None:
        """Stop reading, and let `run` end once everything that was read is written."""
        self._counting.cancel()
        await self.pause()
        for line in self.lines:
            line.inbox.end_events()

    async def keep(self) -> None:
        """Store the sources' positions, and from time to time the hashtag counts."""
        if anyio.current_time() >= self._hashtags_due:
            began = anyio.current_time()
            await self.write_hashtags()
            self._hashtags_due = began + (anyio.current_time() - began) / HASHTAGS_SHARE
        for line in self.lines:
            await line.keep_position()

    async def write_hashtags(self) -> None:
        """Write the hashtags' file; a failure is logged once until a write succeeds."""
        try:
            await anyio.to_thread.run_sync(self.hashtags.write)
            self._is_file_lost = False
        except OSError as error:
            if not self._is_file_lost:
                log.warning("hashtags could not be written", reason=str(error))
            self._is_file_lost = True

    @property
    def has_failed_sources(self) -> bool:
        """Whether a source could not be read at all."""
        return any(line.reader.has_failed for line in self.lines)

    def report(self) -> None:
        """Log the account of each source."""
        for line in self.lines:
            others = {"panics": line.pool.panics, "crashes": line.pool.crashes, "gaps": line.reader.state.gaps}
            log.info("account", source=line.reader.source.name, **line.account.summary(), **others)
            if line.account.in_flight:
                log.error(
                    "events were read but not written",
                    source=line.reader.source.name,
                    events=line.account.in_flight,
                )

    async def _count_stored_hashtags(self) -> None:
        with self._counting:
            while not self.hashtags.is_whole:
                try:
                    self.hashtags.add_stored(await self.store.hashtags(self._began_at))
                except PyMongoError as error:
                    if not self._counting_backoff.failures:
                        log.warning("counting the stored hashtags failed, retrying", reason=reason_of(error))
                    await anyio.sleep(self._counting_backoff.next_pause_s())

    def _count_hashtags(self, entry: TweetEntry) -> None:
        self.hashtags.add_hashtags(entry.tweet.hashtags)
