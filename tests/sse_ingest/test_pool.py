"""Workers die and are replaced, pools grow and shrink, and no event is lost."""

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import structlog

from sse_ingest import inbox as inbox_module
from sse_ingest import pool as pool_module
from sse_ingest import process
from sse_ingest.found import Rejected
from sse_ingest.handover import RawEvent, Reply, ScoredTweet
from sse_ingest.inbox import Inbox
from sse_ingest.pool import Pool, PoolSize
from sse_ingest.process import WorkerProcess
from sse_ingest.worker import WorkerJob
from tests.sse_ingest import fatal
from tests.sse_ingest.samples import status
from tests.support.waiting import until_async

JOB = WorkerJob("twitter", "", "test")
PANIC = RawEvent(b'{"message": panic}')
FATAL = RawEvent(json.dumps(status(fatal.FATAL_ID)).encode())
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


def tweet(number: int) -> RawEvent:
    return RawEvent(json.dumps(status(number)).encode())


class Delivered:
    """The results of the workers."""

    def __init__(self) -> None:
        self.tweets: list[str] = []
        self.rejected: list[str] = []
        self.workers: set[str] = set()
        self.arrived = anyio.Event()

    async def __call__(self, worker: str, events: list[RawEvent], reply: Reply) -> None:
        assert len(events) == len(reply.outcomes)
        self.workers.add(worker)
        for outcomes in reply.outcomes:
            self.tweets.extend(one.id for one in outcomes if isinstance(one, ScoredTweet))
            self.rejected.extend(one.error for one in outcomes if isinstance(one, Rejected))
        self.arrived.set()


@asynccontextmanager
async def running(size: PoolSize, delivered: Delivered, job: WorkerJob = JOB) -> AsyncIterator[tuple[Pool, Inbox]]:
    inbox = Inbox(100_000)
    pool = Pool("pool", job, inbox, delivered, size)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run)
        yield pool, inbox
        inbox.end_events()


def put(inbox: Inbox, *events: RawEvent) -> None:
    for event in events:
        assert inbox.put_event(event, threading.Event())


async def test_every_event_is_delivered_once() -> None:
    delivered = Delivered()
    async with running(PoolSize(2, 2), delivered) as (_, inbox):
        put(inbox, *(tweet(number) for number in range(1, 1001)))
    assert sorted(map(int, delivered.tweets)) == list(range(1, 1001))
    assert delivered.rejected == []


async def test_a_panic_message_ends_its_worker_and_loses_no_other_event() -> None:
    delivered = Delivered()
    async with running(PoolSize(2, 2), delivered) as (pool, inbox):
        for number in range(1, 301):
            put(inbox, tweet(number), *([PANIC] if number % 30 == 0 else []))
    assert sorted(map(int, delivered.tweets)) == list(range(1, 301))
    assert delivered.rejected == ["a panic message killed its worker"] * 10
    assert (pool.panics, pool.crashes) == (10, 0)


async def test_an_unexpected_exception_ends_the_worker_and_is_reported_with_its_place() -> None:
    delivered = Delivered()
    broken = WorkerJob("no such shape", "", "test")  # type: ignore[arg-type]
    async with running(PoolSize(1, 1), delivered, broken) as (pool, inbox):
        put(inbox, tweet(1))
    assert pool.crashes == 1
    assert delivered.rejected[0].startswith("KeyError in find, line ")


def children() -> set[int]:
    """Return all descendants of this process: workers are children of the fork server."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in found | {os.getpid()}} - found:
        found |= more
    return found


async def test_a_worker_killed_from_outside_loses_no_event() -> None:
    delivered = Delivered()
    async with running(PoolSize(1, 1, events_per_task=50), delivered) as (pool, inbox):
        before = children()
        put(inbox, tweet(1))
        await until_async(lambda: delivered.tweets)
        (worker,) = children() - before or children()
        put(inbox, *(tweet(number) for number in range(2, 2001)))
        os.kill(worker, signal.SIGKILL)
    assert sorted(map(int, delivered.tweets)) == list(range(1, 2001))
    assert delivered.rejected == []
    assert pool.crashes == 1


async def test_a_worker_that_hangs_is_replaced_and_the_culprit_found() -> None:
    delivered = Delivered()
    async with running(PoolSize(1, 1, events_per_task=8, task_timeout_s=1.0), delivered) as (pool, inbox):
        before = children()
        put(inbox, tweet(1))
        await until_async(lambda: delivered.tweets)
        (worker,) = children() - before or children()
        os.kill(worker, signal.SIGSTOP)
        put(inbox, *(tweet(number) for number in range(2, 6)))
    assert sorted(map(int, delivered.tweets)) == list(range(1, 6))
    assert pool.crashes == 1


async def test_a_process_that_cannot_be_started_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    delivered = Delivered()
    fork, refused = process._fork, iter([BlockingIOError(11, "Resource temporarily unavailable")])

    def refuse_once(job: WorkerJob, pipe: socket.socket) -> BaseProcess:
        for error in refused:
            raise error
        return fork(job, pipe)

    monkeypatch.setattr(process, "_fork", refuse_once)
    monkeypatch.setattr(pool_module, "START_PAUSE_S", 0.01)
    async with running(PoolSize(1, 1), delivered) as (_, inbox):
        put(inbox, tweet(1), tweet(2))
    assert delivered.tweets == ["1", "2"]


async def test_an_event_that_takes_forever_is_found_among_others_and_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    delivered = Delivered()
    monkeypatch.setattr(process, "work", fatal.hang)
    async with running(PoolSize(1, 1, task_timeout_s=2.0), delivered) as (pool, inbox):
        put(inbox, *(tweet(number) for number in range(1, 6)), FATAL, *(tweet(number) for number in range(6, 11)))
    assert sorted(map(int, delivered.tweets)) == list(range(1, 11))
    assert delivered.rejected == ["2 workers died with it alone, the last one: no reply within 2 s"]
    assert pool.crashes == 3


@pytest.mark.parametrize("others", [0, 4])
async def test_an_event_that_kills_every_worker_is_rejected_after_two_deaths_alone(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered = Delivered()
    monkeypatch.setattr(process, "work", fatal.kill)
    async with running(PoolSize(1, 1), delivered) as (pool, inbox):
        put(inbox, FATAL, *(tweet(number) for number in range(1, others + 1)))
    assert sorted(map(int, delivered.tweets)) == list(range(1, others + 1))
    assert len(delivered.rejected) == 1
    assert pool.crashes == (3 if others else 2)


@pytest.mark.parametrize("die", [fatal.kill_once, fatal.run_out_of_memory])
async def test_a_good_tweet_that_is_alone_with_a_dying_worker_is_delivered_by_another(
    die: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered = Delivered()
    monkeypatch.setattr(process, "work", partial(die, tmp_path / "died"))
    with structlog.testing.capture_logs() as logs:
        async with running(PoolSize(1, 1), delivered) as (pool, inbox):
            put(inbox, FATAL)
    assert (delivered.tweets, delivered.rejected, pool.crashes) == (["99"], [], 1)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["worker died, replacing it"]


async def test_a_start_that_is_cancelled_closes_both_ends_of_its_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes: list[socket.socket] = []

    def remember() -> tuple[socket.socket, socket.socket]:
        pipes.extend(pair := socketpair())
        return pair

    socketpair = socket.socketpair
    monkeypatch.setattr(socket, "socketpair", remember)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await WorkerProcess(JOB).exchange_task([tweet(1)], 10)
    assert [pipe.fileno() for pipe in pipes] == [-1, -1]


async def test_a_pool_that_ends_in_the_moment_in_which_its_scaling_wakes_up_ends_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    sleep, close = anyio.sleep, WorkerProcess.aclose
    is_second_over = loop.create_future()

    async def sleep_until_told(seconds: float) -> None:
        await (is_second_over if seconds == 1 else sleep(seconds))

    async def close_and_wake_up_the_scaling(process: WorkerProcess) -> None:
        await close(process)
        # On a slow event loop, the sleep of the scaling can end at a bad moment: the last worker's task has ended, but the
        # cancellation is not delivered yet.
        if not is_second_over.done():
            loop.call_soon(loop.call_soon, is_second_over.set_result, None)

    monkeypatch.setattr(anyio, "sleep", sleep_until_told)
    monkeypatch.setattr(WorkerProcess, "aclose", close_and_wake_up_the_scaling)
    delivered = Delivered()
    with anyio.fail_after(10):
        async with running(PoolSize(1, 1), delivered) as (pool, inbox):
            put(inbox, tweet(1))
    assert (delivered.tweets, pool.workers) == (["1"], 0)


async def test_surplus_workers_that_may_end_at_the_same_moment_leave_one_worker() -> None:
    delivered = Delivered()
    async with running(PoolSize(2, 2), delivered) as (pool, inbox):
        await until_async(lambda: len(pool._idle) == 2)
        # One worker is cancelled while it waits. The other worker finds after a delivery that the pool has too many workers.
        pool.size, pool.wanted = PoolSize(1, 2), 1
        for scope in list(pool._idle):
            scope.cancel()
        await until_async(lambda: pool.workers == 1)
        put(inbox, tweet(1))
        await until_async(lambda: delivered.tweets == ["1"], 5)


async def test_a_pool_grows_under_load_shrinks_without_and_loses_nothing() -> None:
    delivered = Delivered()
    sizes = [1]
    async with running(PoolSize(1, 3, events_per_task=4), delivered) as (pool, inbox):
        number = 0
        with anyio.fail_after(50):
            while sizes[-1] > 1 or max(sizes) < 3:
                if max(sizes) < 3 and len(inbox) < 20_000:
                    put(inbox, *(tweet(number + more) for more in range(1, 51)))
                    number += 50
                await anyio.sleep(0.001)
                if sizes[-1] != pool.workers:
                    sizes.append(pool.workers)
    assert sizes[-2] == 2
    assert sorted(map(int, delivered.tweets)) == list(range(1, number + 1))
    assert len(delivered.workers) >= 3


async def test_a_full_inbox_holds_back_the_reader_until_there_is_room_or_it_is_stopped() -> None:
    inbox = Inbox(2)
    stopped = threading.Event()
    put(inbox, tweet(1), tweet(2))
    answers: list[bool] = []
    reader = threading.Thread(target=lambda: answers.append(inbox.put_event(tweet(3), stopped)))
    reader.start()
    reader.join(0.1)
    assert reader.is_alive()
    assert len(await inbox.take_events(1)) == 1
    await anyio.to_thread.run_sync(reader.join)
    reader = threading.Thread(target=lambda: answers.append(inbox.put_event(tweet(4), stopped)))
    reader.start()
    stopped.set()
    await anyio.to_thread.run_sync(reader.join)
    assert answers == [True, False]
    assert len(inbox) == 2


async def test_of_large_events_fewer_wait_and_fewer_are_given_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "INBOX_BYTES_MAX", 4000)
    monkeypatch.setattr(inbox_module, "TASK_BYTES_MAX", 2000)
    inbox, stopped = Inbox(100), threading.Event()
    large = RawEvent(b"x" * 1000)
    put(inbox, *[large] * 4)
    stopped.set()
    assert not inbox.put_event(large, stopped)
    taken = await inbox.take_events(100)
    assert len(taken) == 2
    assert inbox.put_event(large, stopped)
    inbox.give_back_events(taken)
    assert not inbox.put_event(large, stopped)
    assert [len(await inbox.take_events(100)) for _ in range(3)] == [2, 2, 1]
    put(inbox, *[RawEvent(b"x")] * 100)
    assert len(await inbox.take_events(100)) == 100
