"""Listening that outlasts a time without file descriptors, which would otherwise end with the first client too many."""

from collections.abc import Awaitable, Callable
from errno import EMFILE, ENFILE
from typing import Any, Final

import anyio
import structlog
from anyio.abc import Listener, TaskGroup

__all__ = ["is_want_of_descriptors", "serve_patiently"]

PAUSE_S: Final = 0.2
TELL_EVERY_S: Final = 10.0

logger = structlog.stdlib.get_logger()


async def serve_patiently(
    listener: Listener[Any], handle: Callable[[Any], Awaitable[object]], connections: TaskGroup
) -> None:
    """Have connections handled in `connections`, for ever; those that there are no descriptors for wait.

    Raises a group of OSError.
    """
    told_at = -TELL_EVERY_S
    while True:
        try:
            await listener.serve(handle, connections)
        # A group, since a listener may be several: one for each address of a host.
        except* OSError as errors:
            if errors.split(is_want_of_descriptors)[1] is not None:
                raise
            if anyio.current_time() - told_at >= TELL_EVERY_S:
                told_at = anyio.current_time()
                logger.warning("no file descriptors are left; new connections wait. Raise the limit (ulimit -n)")
            await anyio.sleep(PAUSE_S)


def is_want_of_descriptors(error: BaseException) -> bool:
    """Whether the process or the system has as many files open as it may."""
    return isinstance(error, OSError) and error.errno in {EMFILE, ENFILE}
