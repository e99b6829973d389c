"""End a program whose stop is requested before it has started."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

__all__ = ["ended_if_stopped"]


@asynccontextmanager
async def ended_if_stopped(stop: anyio.Event) -> AsyncIterator[anyio.Event]:
    """Cancel the block if `stop` is set before the event that it yields. Afterwards, the block itself reacts to `stop`."""
    is_ready = anyio.Event()

    async def cancel_unless_ready() -> None:
        await stop.wait()
        if not is_ready.is_set():
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_unless_ready)
        yield is_ready
        tasks.cancel_scope.cancel()
