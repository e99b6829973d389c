"""The workers of one source: processes that are replaced when they die, and whose number follows the load.

Always true: exactly one worker has an event that was taken from the inbox, until the event is delivered, given back or
rejected. If a worker reports the cause of its death, one event is rejected. If a worker dies without a report (killed, out of
memory, no reply in time), all its events are suspects: each is retried alone. A suspect is rejected once two workers have died
with it alone. A single such death may be chance, such as an operator's SIGKILL. Scoring has no effect outside its process, so a
retry is harmless.
"""

from collections import deque
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from sse_ingest.found import Rejected
from sse_ingest.handover import RawEvent, Reply
from sse_ingest.inbox import Inbox
from sse_ingest.process import CannotStart, WorkerDied, WorkerProcess
from sse_ingest.scaling import workers_wanted
from sse_ingest.worker import WorkerJob
from tweetwire.runtime.program import logger

__all__ = ["Deliver", "Pool", "PoolSize"]

START_PAUSE_S = 1.0

SCALE_EVERY_S = 1.0

DEATHS_ALONE_MAX = 2
"""An event is rejected after this many workers have died with it as their only event."""

log = logger()

Deliver = Callable[[str, list[RawEvent], Reply], Awaitable[None]]
"""Called with a worker's name, the events that it was given, and its reply."""


class PoolSize(Struct, frozen=True):
    """The limits of a pool's size and of one worker's task."""

    least: int = 1
    most: int = 2
    events_per_task: int = 200
    task_timeout_s: float = 30.0


class _Load(Struct):
    """Events for one worker. `deaths_alone` counts the workers that died while this event was their only one."""

    events: list[RawEvent]
    deaths_alone: int = 0


class Pool:
    """The workers of one source.

    `panics` counts workers that ended because of the source's kill message, as intended; `crashes` counts all other deaths.
    """

    def __init__(self, name: str, job: WorkerJob, inbox: Inbox, deliver: Deliver, size: PoolSize) -> None:
        self.name = name
        self.size = size
        self.crashes = 0
        self.panics = 0
        self.workers = 0
        self.wanted = size.least
        self.seconds_per_event = 0.0
        self._job = job
        self._inbox = inbox
        self._deliver = deliver
        self._retries: deque[_Load] = deque()
        self._idle: set[anyio.CancelScope] = set()
        self._scaling = anyio.CancelScope()
        self._numbers = 0
        self._arrived_before = 0

    async def run(self) -> None:
        """Work until the inbox has ended and everything in it is delivered.

        1. The inbox ends. Each tender (a task that serves one worker) ends once the inbox is empty and it has delivered its
           events.
        2. The last tender to end cancels the scaling, which runs in the same task group. If the scaling has already woken up,
           it may start one more tender, which finds the inbox ended and ends, too.
        3. Then the task group waits until the tenders have closed their processes.
        """
        async with anyio.create_task_group() as tenders:
            self._grow(tenders)
            with self._scaling:
                await self._scale(tenders)

    async def _scale(self, tenders: TaskGroup) -> None:
        while True:
            await anyio.sleep(SCALE_EVERY_S)
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
        """Cancel surplus workers that wait for events. Surplus workers that are busy end after they have delivered."""
        for scope in list(self._idle)[: max(self.workers - self.wanted, 0)]:
            scope.cancel()

    async def _tend(self, name: str) -> None:
        """Feed one worker, and replace its process whenever it dies, until the pool no longer needs it."""
        process = WorkerProcess(self._job)
        try:
            while self._retries or (self.workers <= self.wanted and not self._inbox.is_over):
                if (load := await self._next()) is None:
                    continue
                if (reply := await self._try(process, name, load)) is not None:
                    self._measure(reply)
                    await self._deliver(name, load.events[: len(reply.outcomes)], reply)
        finally:
            self.workers -= 1
            if not self.workers:
                self._scaling.cancel()
            await process.aclose()

    async def _try(self, process: WorkerProcess, name: str, load: _Load) -> Reply | None:
        """Return the worker's reply, up to the event that kills it, or None if all events must be retried."""
        events = load.events
        try:
            reply = await process.exchange_task(events, self.size.task_timeout_s)
        except CannotStart as error:
            log.error("worker could not start, retrying", worker=name, reason=str(error))
            self._retries.appendleft(load)
            await anyio.sleep(START_PAUSE_S)
            return None
        except WorkerDied as death:
            self.crashes += 1
            log.warning("worker died, replacing it", worker=name, cause=str(death), events=len(events))
            await process.aclose()
            return self._suspect(load, str(death))
        if reply.failure is not None:
            self._note_failure(name, reply)
            await process.aclose()
            reply.outcomes.append([Rejected(reply.failure)])
            self._inbox.give_back_events(events[len(reply.outcomes) :])
        return reply

    async def _next(self) -> _Load | None:
        """Return events to retry, else new ones; None if the inbox has ended or the worker may be surplus."""
        if not self._retries:
            with anyio.CancelScope() as scope:
                self._idle.add(scope)
                try:
                    # Cancelling loses nothing: `take` does not wait between taking the events and returning them.
                    if events := await self._inbox.take_events(self.size.events_per_task):
                        return _Load(events)
                finally:
                    self._idle.discard(scope)
        return self._retries.popleft() if self._retries else None

    def _note_failure(self, name: str, reply: Reply) -> None:
        """Count and log a worker that reported its cause of death."""
        if reply.is_panic:
            self.panics += 1
            log.debug("worker died of a panic message, as the source intends", worker=name)
        else:
            self.crashes += 1
            log.warning("worker died, replacing it", worker=name, cause=reply.failure, events=1)

    def _suspect(self, load: _Load, cause: str) -> Reply | None:
        """Queue the events of a worker that died without a report. Return a reply if its only event must be rejected."""
        if len(load.events) > 1:
            self._retries.extend(_Load([event]) for event in load.events)
            return None
        load.deaths_alone += 1
        if load.deaths_alone >= DEATHS_ALONE_MAX:
            return Reply([[Rejected(f"{load.deaths_alone} workers died with it alone, the last one: {cause}")]], [])
        self._retries.append(load)
        return None

    def _measure(self, reply: Reply) -> None:
        if reply.seconds:
            mean = sum(reply.seconds) / len(reply.seconds)
            self.seconds_per_event = mean if not self.seconds_per_event else 0.9 * self.seconds_per_event + 0.1 * mean
