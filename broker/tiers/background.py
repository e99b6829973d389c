"""Functions in threads that a stop does not wait for.

A request to a store that hangs may take minutes. The broker must stop within seconds, so these threads are daemons: the end of
the process ends them. A request that is cut off has the same effect as one of a broker that is killed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Thread
from typing import TypeVar

import anyio
from anyio.from_thread import BlockingPortal

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """Runs functions in daemon threads."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Background"]:
        """Return the runner for this event loop, until the end of the block."""
        async with BlockingPortal() as portal:
            yield cls(portal)

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of a function that runs in a thread. Raises its exception.

        If the caller is cancelled, the thread continues, and its result is dropped.
        """
        done = anyio.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001 — raised again in the task that waits
                errors.append(error)
            # The portal is closed once the broker has stopped.
            with suppress(RuntimeError):
                self._portal.start_task_soon(done.set)

        Thread(target=work, name="tier", daemon=True).start()
        await done.wait()
        if errors:
            raise errors.pop()
        return results.pop()
