"""The workers of one source: processes that are replaced when they die, as many as the load needs.

Always true: an event taken from the inbox is in exactly one worker's hands until its findings are delivered, it is given
back, or it is rejected. A worker that says what it died of costs one event. One that dies without a word (killed, out
of memory, stuck beyond its time) leaves its events as suspects: they are tried again one by one, and the one that is
alone with a worker when it dies is the culprit. Scoring has no effect outside, so a second try does no harm.
"""

from collections import deque
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from broker.program import logger
from sse_ingest.handover import RawEvent, Rejected, Reply
from sse_ingest.inbox import Inbox
from sse_ingest.process import CannotStart, WorkerDied, WorkerProcess
from sse_ingest.scaling import workers_wanted
from sse_ingest.worker import Job

__all__ = ["Deliver", "Pool", "PoolSize"]

START_PAUSE_S = 1.0

log = logger()

Deliver = Callable[[str, list[RawEvent], Reply], Awaitable[None]]
"""Takes a worker's name, the events it was given, and what it made of them."""


class PoolSize(Struct, frozen=True):
    """How large a pool may be, and how much one worker is given at once."""

    least: int = 1
    most: int = 2
    events_per_task: int = 200
    task_timeout_s: float = 30.0


class Pool:
    """The workers of one source."""

    def __init__(self, name: str, job: Job, inbox: Inbox, deliver: Deliver, size: PoolSize) -> None:
        self.name = name
        self.size = size
        self.crashes = 0
        self.workers = 0
        self.wanted = size.least
        self.seconds_per_event = 0.0
        self._job = job
        self._inbox = inbox
        self._deliver = deliver
        self._suspects: deque[RawEvent] = deque()
        self._idle: set[anyio.CancelScope] = set()
        self._numbers = 0
        self._arrived_before = 0

    async def run(self) -> None:
        """Work until the inbox has ended and everything in it is delivered."""
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as tenders:
                self._grow(tenders)
                tasks.start_soon(self._scale, tenders)
            tasks.cancel_scope.cancel()

    async def _scale(self, tenders: TaskGroup) -> None:
        while True:
            await anyio.sleep(1)
            arrived = self._inbox.arrived
            self.wanted = workers_wanted(
                arrival_per_s=arrived - self._arrived_before,
                queued=len(self._inbox),
                seconds_per_event=self.seconds_per_event,
                workers=self.workers,
                least=self.size.least,
                most=self.size.most,
            )
            self._arrived_before = arrived
            self._grow(tenders)
            self._shrink()

    def _grow(self, tenders: TaskGroup) -> None:
        while self.workers < self.wanted:
            self.workers += 1
            self._numbers += 1
            tenders.start_soon(self._tend, f"{self.name}#{self._numbers}")

    def _shrink(self) -> None:
        """Send home workers that wait for events; the busy ones go when they have delivered."""
        for scope in list(self._idle)[: max(self.workers - self.wanted, 0)]:
            scope.cancel()

    async def _tend(self, name: str) -> None:
        """Feed one worker, replacing its process as often as it dies, until the pool needs it no more."""
        process = WorkerProcess(self._job)
        try:
            while (self._suspects or self.workers <= self.wanted) and (events := await self._next()):
                if (reply := await self._try(process, name, events)) is not None:
                    self._measure(reply)
                    await self._deliver(name, events[: len(reply.findings)], reply)
        finally:
            self.workers -= 1
            await process.aclose()

    async def _try(self, process: WorkerProcess, name: str, events: list[RawEvent]) -> Reply | None:
        """Return what the worker makes of `events`, up to the one that kills it; None if they are to be tried again."""
        try:
            reply = await process.carry_out(events, self.size.task_timeout_s)
        except CannotStart as error:
            log.error("cannot start a worker, trying on", worker=name, reason=str(error))
            self._inbox.give_back(events)
            await anyio.sleep(START_PAUSE_S)
            return None
        except WorkerDied as death:
            await self._bury(process, name, str(death))
            return self._suspect(events, str(death))
        if reply.failure is not None:
            await self._bury(process, name, reply.failure)
            reply.findings.append([Rejected(reply.failure)])
            self._inbox.give_back(events[len(reply.findings) :])
        return reply

    async def _next(self) -> list[RawEvent]:
        """Return a suspect, or the next events; none if the inbox has ended or the worker is not wanted."""
        if not self._suspects:
            with anyio.CancelScope() as scope:
                self._idle.add(scope)
                try:
                    # Cancelling is safe: what is taken from the inbox is taken without waiting in between.
                    if events := await self._inbox.take(self.size.events_per_task):
                        return events
                finally:
                    self._idle.discard(scope)
        return [self._suspects.popleft()] if self._suspects else []

    async def _bury(self, process: WorkerProcess, name: str, cause: str) -> None:
        self.crashes += 1
        log.debug("a worker died and is replaced", worker=name, cause=cause)
        await process.aclose()

    def _suspect(self, events: list[RawEvent], cause: str) -> Reply | None:
        if len(events) == 1:
            return Reply([[Rejected(f"its worker died: {cause}")]], [])
        self._suspects.extend(events)
        return None

    def _measure(self, reply: Reply) -> None:
        if reply.seconds:
            mean = sum(reply.seconds) / len(reply.seconds)
            self.seconds_per_event = mean if not self.seconds_per_event else 0.9 * self.seconds_per_event + 0.1 * mean
