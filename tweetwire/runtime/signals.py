"""React to signals, in the same way in all programs.

SIGINT and SIGTERM ask the program to end, and the second of them ends it at once. SIGHUP makes a service read its files
again. An interactive program ends on SIGHUP, which it receives when its terminal is closed.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import structlog
from anyio.abc import TaskStatus

from tweetwire.protocol.errors import StartError

__all__ = ["reloading", "watch_signals"]

logger = structlog.stdlib.get_logger()

_reloads: list[Callable[[], None]] = []


@contextmanager
def reloading(reload: Callable[[], None]) -> Iterator[None]:
    """Call `reload` on each SIGHUP until the end of the block.

    If `reload` raises StartError, the message is logged and the program continues. So `reload` must not change anything
    before it raises. Any other exception is logged as a bug with its traceback, and the program continues.
    """
    _reloads.append(reload)
    try:
        yield
    finally:
        _reloads.remove(reload)


async def watch_signals(stop: anyio.Event, is_service: bool, *, task_status: TaskStatus[None]) -> None:
    """Set `stop` on the first signal that ends the program; exit at once with status 130 on the second."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP and is_service:
                _reload()
            elif stop.is_set():
                os._exit(130)
            else:
                stop.set()


def _reload() -> None:
    try:
        for reload in _reloads:
            reload()
    except StartError as error:
        logger.error("cannot reload, the files read before stay in use", reason=str(error))
    except Exception:
        # A file whose content triggers a bug must not end a running service.
        logger.exception("a bug stopped a reload, files not yet reloaded stay in use")
    else:
        logger.info("reloaded" if _reloads else "nothing to reload")
