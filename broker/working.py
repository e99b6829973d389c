"""The runner of the core's jobs: their slices run on the event loop, their searches in threads.

Always true:

- one turn of the event loop runs at most one slice of `TURN_S` seconds, whatever the number of jobs;
- the jobs have their turns in order;
- at most `THREADS` searches run at once;
- a job ends when its session ends, unless it outlives the session, and when the broker begins to shut down.
"""

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from broker.core import Broker, Job, Session
from broker.core.steps import Interrupt, Interrupted, Steps, Tick
from tweetwire.files import why
from tweetwire.protocol.errors import Refusal, internal

__all__ = ["Jobs"]

R = TypeVar("R")

TURN_S: Final = 0.005
THREADS: Final = 4


class Jobs:
    """The jobs that are in progress."""

    def __init__(self, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._scopes: dict[Job, anyio.CancelScope] = {}
        self._turns = anyio.Lock()
        self._threads = anyio.CapacityLimiter(THREADS)
        self._has_ticked = anyio.Event()

    def begin(self, job: Job) -> bool:
        """Register a job. Returns True if the caller must call `work_on` in a task, False if the broker is shutting down."""
        if self._broker.is_draining:
            self._broker.has_failed(job, _shutting_down())
            return False
        self._scopes[job] = anyio.CancelScope()
        return True

    def tick(self) -> None:
        """Resume the jobs that wait for the next tick."""
        has_ticked, self._has_ticked = self._has_ticked, anyio.Event()
        has_ticked.set()

    def end(self, session: Session | None = None) -> None:
        """End the jobs of a session that has ended. With None, end and answer all jobs, since the broker is shutting down."""
        for job, scope in list(self._scopes.items()):
            if session is None or (session is job.session and not job.outlives):
                job.interrupt.ask()
                scope.cancel()

    async def work_on(self, job: Job) -> None:
        """Run a job and give the core its reply. Never raises."""
        broker = self._broker
        try:
            with self._scopes[job] as scope:
                broker.has_done(job, await self.finish(job.steps, job.interrupt), self._now_ms())
            if scope.cancelled_caught:
                broker.has_failed(job, _shutting_down())
        except Refusal as refusal:
            broker.has_failed(job, refusal)
        except OSError as error:
            broker.has_failed(job, Refusal("disk", why(error)))
        except Exception as error:  # noqa: BLE001 — a bug in one command must not end the broker
            broker.has_failed(job, internal(error))
        finally:
            del self._scopes[job]
            job.steps.close()

    async def finish(self, steps: Steps[R], interrupt: Interrupt) -> R:
        """Run the steps of a job and return its result. Raises Refusal."""
        value: Any = None
        while True:
            async with self._turns:
                ends = time.monotonic() + TURN_S
                try:
                    step = steps.send(value)
                    while step is None and time.monotonic() < ends:
                        step = steps.send(None)
                except StopIteration as end:
                    outcome: R = end.value
                    return outcome
                if step is None:
                    await checkpoint()
            value = None
            if isinstance(step, Tick):
                await self._has_ticked.wait()
            elif step is not None:
                value = await self._search(step, interrupt)

    async def _search(self, function: Callable[[Interrupt], Any], interrupt: Interrupt) -> Any:
        """Run a function in a thread.

        If the job is cancelled, it does not wait for the thread, which ends when it sees the interrupt.
        """

        def run() -> Any:
            try:
                return function(interrupt)
            except Interrupted:
                return None

        return await to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._threads)


def _shutting_down() -> Refusal:
    return Refusal("shutting_down", "this broker is shutting down; ask again when it has restarted")
