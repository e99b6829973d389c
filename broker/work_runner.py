"""The tasks that do the work which the core leaves: write and read the logs, write records, run jobs, wake sessions.

A writer task for each topic commits in groups: while one batch is on its way to the disk, in a thread, the next one fills.
"""

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio
import structlog
from anyio import to_thread
from anyio.abc import TaskGroup

from broker.core import Broker, Drop, Fetch, Job, Look, Reading, Session, Task, Topic
from broker.core.steps import Interrupt
from broker.data_directory import DataDirectory
from broker.keeper import Keeper
from broker.working import Jobs
from tweetwire.files import why
from tweetwire.protocol.errors import Refusal, internal

__all__ = ["WorkRunner"]

DRAIN_POLL_S: Final = 0.01
READ_AGAIN_S: Final = 1.0
BUGS_PER_SECOND: Final = 10

logger = structlog.stdlib.get_logger()


class WorkRunner:
    """Does the work of `broker` on the files of `data`, from `start` to `finish`."""

    def __init__(self, broker: Broker, data: DataDirectory, now_ms: Callable[[], int]) -> None:
        self.broker = broker
        self.now_ms = now_ms
        self.jobs = Jobs(broker, now_ms)
        self._data = data
        self._keeper = Keeper(broker, data, now_ms)
        # The functions that wake the connections, by session number.
        self._wakes: dict[int, Callable[[], None]] = {}
        self._writers: dict[Topic, anyio.Event] = {}
        self._tasks: TaskGroup | None = None
        self._dropping = 0
        self._deleting = anyio.Lock()
        self._bugs_second = self._bugs_logged = 0

    async def recover(self, topics: list[str]) -> None:
        """Restore the broker from its folder, and create `topics`. Raises StartError."""
        await self._keeper.recover(topics)

    def start(self, tasks: TaskGroup) -> None:
        """Start the tasks that write the files, and do the pending work."""
        self._tasks = tasks
        tasks.start_soon(self._keep_journal)
        tasks.start_soon(self._keeper.forget_old)
        tasks.start_soon(self._delete_dropped)
        self.do_work()

    async def finish(self) -> None:
        """Wait until pending batches are written. Then write the state, with the ends of the logs, and close the files."""
        topics = self.broker.topics.values()
        while self._dropping or any(topic.next > topic.visible for topic in topics):
            await anyio.sleep(DRAIN_POLL_S)
        await self._keeper.close()
        for topic in topics:
            topic.log.close()

    def add_session(self, session: Session, wake: Callable[[], None]) -> None:
        """Have `wake` called when a session has output. It must only record that fact."""
        self._wakes[session.number] = wake

    def remove_session(self, session: Session) -> None:
        """End a session and its jobs, and return its events in flight."""
        del self._wakes[session.number]
        self.jobs.end(session)
        self.broker.disconnect(session, self.now_ms())
        self.do_work()

    def do_work(self) -> None:
        """Do the work that the core left. Work that has to wait runs in a task."""
        # This runs twice for each event, so it skips everything that is empty.
        work = self.broker.work
        if work.bugs:
            bugs, work.bugs = work.bugs, []
            for bug in bugs:
                self.log_bug(bug)
        if work.records or work.must_sync_records:
            records, is_awaited = work.take_records()
            self._keeper.keep(records, is_awaited=is_awaited)
        if work.topics:
            topics, work.topics = work.topics, set()
            for topic in topics:
                self._wake_writer(topic)
        if work.tasks:
            for task in work.take_tasks():
                self._begin(task)
        if work.sessions:
            sessions, work.sessions = work.sessions, set()
            for session in sessions:
                wake = self._wakes.get(session.number)
                if wake is not None:
                    wake()

    def _begin(self, task: Task) -> None:
        match task:
            case Fetch() | Look():
                self._start_task(partial(self._fetch, task))
            case Reading():
                self._start_task(partial(self._read, task))
            case Job():
                if self.jobs.begin(task):
                    self._start_task(partial(self._work_on, task))
            case Drop():
                self._dropping += 1
                self._start_task(partial(self._drop, task))

    def log_bug(self, error: BaseException) -> None:
        """Log an unexpected exception with its traceback, at most `BUGS_PER_SECOND` of them."""
        second = int(time.monotonic())
        if second != self._bugs_second:
            self._bugs_second, self._bugs_logged = second, 0
        self._bugs_logged += 1
        if self._bugs_logged <= BUGS_PER_SECOND:
            logger.error("a bug; the broker continues", exc_info=error)

    async def _keep_journal(self) -> None:
        while True:
            await self._keeper.journal_is_due()
            await self._keeper.sync_journal()
            self.do_work()
            await self._keeper.fold_if_large()

    def _wake_writer(self, topic: Topic) -> None:
        due = self._writers.get(topic)
        if due is None:
            self._writers[topic] = due = anyio.Event()
            self._start_task(partial(self._write_topic, topic))
        due.set()

    async def _write_topic(self, topic: Topic) -> None:
        """Write a topic's batches one after the other, until it is dropped.

        A batch holds all events that arrived during the previous write.
        """
        while topic in self._writers:
            while topic.has_pending:
                needed, batch = topic.needed_record, topic.begin_write()
                try:
                    if needed > self.broker.synced_records:
                        await self._keeper.sync(needed)
                    await to_thread.run_sync(self._data.append, topic.log, batch)
                except OSError as error:
                    logger.error("cannot write", topic=topic.name, reason=why(error))
                    self.broker.not_committed(topic, f"{why(error)}; nothing was stored", self.now_ms())
                else:
                    self.broker.committed(topic, batch, self.now_ms())
                self.do_work()
            due = self._writers[topic] = anyio.Event()
            await due.wait()

    async def _drop(self, drop: Drop) -> None:
        """Rename the log of a topic, and then delete it. The topic no longer exists from the rename on."""
        topic, broker = drop.topic, self.broker
        try:
            while topic.next > topic.visible:
                await anyio.sleep(DRAIN_POLL_S)
            await to_thread.run_sync(self._data.drop, topic.name, topic.log)
        except OSError as error:
            logger.error("cannot drop a topic", topic=topic.name, reason=why(error))
            broker.has_failed(drop, Refusal("disk", f"{why(error)}; the topic stays"))
        except Exception as error:  # noqa: BLE001 — a bug in one command must not end the broker
            broker.has_failed(drop, internal(error))
        else:
            if (due := self._writers.pop(topic, None)) is not None:
                due.set()
            await self.jobs.finish(broker.has_dropped(drop), Interrupt())
            logger.info("dropped a topic", topic=topic.name, client=drop.session.name)
        finally:
            self._dropping -= 1
        self.do_work()
        await self._delete_dropped()

    async def _delete_dropped(self) -> None:
        """Delete the logs of dropped topics, including those that the last run left."""
        async with self._deleting:
            try:
                await to_thread.run_sync(self._data.delete_dropped)
            except OSError as error:
                logger.error("cannot delete the log of a dropped topic; the next start retries", reason=why(error))

    async def _fetch(self, fetch: Fetch | Look) -> None:
        """Read lines for a consumer. Retry while the disk fails, since events in flight must not be lost."""
        topic = fetch.topic
        while True:
            try:
                found = await to_thread.run_sync(topic.read_lines, fetch.offsets)
            except OSError as error:
                logger.error("cannot read, trying again", topic=topic.name, reason=why(error))
                await anyio.sleep(READ_AGAIN_S)
            except Exception as error:  # noqa: BLE001 — one log that cannot be read must not end the broker
                self.log_bug(error)
                await anyio.sleep(READ_AGAIN_S)
            else:
                break
        self.broker.fetched(fetch, found, self.now_ms())
        self.do_work()

    async def _read(self, reading: Reading) -> None:
        try:
            lines, after, damaged = await to_thread.run_sync(
                reading.topic.log.read, reading.first, reading.count, reading.bytes_max
            )
        except OSError as error:
            self.broker.has_failed(reading, Refusal("disk", why(error)))
        except Exception as error:  # noqa: BLE001 — a bug in one command must not end the broker
            self.broker.has_failed(reading, internal(error))
        else:
            self.broker.has_read(reading, lines, after, len(damaged))
        self.do_work()

    async def _work_on(self, job: Job) -> None:
        await self.jobs.work_on(job)
        self.do_work()

    def _start_task(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._tasks is None:
            raise RuntimeError("the server is not open")
        self._tasks.start_soon(task)
