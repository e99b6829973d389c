"""Keeping a query running: started again when it fails, ended between two batches."""

import time
from collections.abc import Callable
from functools import partial

import anyio
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from broker.errors import StartError
from broker.program import logger
from spark.driver_thread import DriverThread
from spark.errors import OptionError, sentence_of
from spark.lag import Lag

__all__ = ["keep_running"]

_PAUSE_FIRST_S = 1.0
_PAUSE_MAX_S = 30.0
_LOOK_S = 0.25
_LASTING = f"{OptionError.__module__}.{OptionError.__name__}"
"""What no new start mends, only another setting; from Spark's Python processes it comes as text."""


async def keep_running(
    name: str,
    thread: DriverThread,
    start: Callable[[], StreamingQuery],
    stop: anyio.Event,
    *,
    drain_s: float,
    started: anyio.Event,
) -> None:
    """Run a query until `stop`; one that fails starts again from its checkpoint, after growing pauses.

    `started` is set when it runs, or has failed to, so that other queries need not wait for its repair. At the end its
    running batch has `drain_s` seconds to finish; one that does not is cut off, which loses nothing either, since it
    runs again at the next start. Raises StartError for options that cannot work.
    """
    pause = _PAUSE_FIRST_S
    while not stop.is_set():
        began = time.monotonic()
        try:
            query = await thread.run(start)
            started.set()
            if await _watch(name, thread, query, stop):
                return await _end(name, thread, query, drain_s)
            error: Exception | None = query.exception()
        except (PySparkException, Py4JError, ConnectionError) as failure:
            error = failure
        if stop.is_set():
            return None
        sentence = sentence_of(error)
        kind, _, reason = sentence.partition(": ")
        if kind == _LASTING:
            raise StartError(f"{name}: {reason}") from error
        started.set()
        logger().error("query failed, starts again", query=name, pause_s=pause, error=sentence)
        with anyio.move_on_after(pause):
            await stop.wait()
        # A query that ran for a while fails anew, not still.
        pause = _PAUSE_FIRST_S if time.monotonic() - began > 10 * _PAUSE_MAX_S else min(2 * pause, _PAUSE_MAX_S)
    return None


async def _watch(name: str, thread: DriverThread, query: StreamingQuery, stop: anyio.Event) -> bool:
    """Wait until `stop` (True) or the query's own end (False)."""
    lag = Lag(name)
    while not stop.is_set():
        if not await thread.run(lambda: query.isActive):
            return False
        if lag.is_due:
            lag.tell(await thread.run(lambda: query.lastProgress))
        with anyio.move_on_after(_LOOK_S):
            await stop.wait()
    return True


async def _end(name: str, thread: DriverThread, query: StreamingQuery, drain_s: float) -> None:
    running = await thread.run(partial(_ended_batch, query))
    with anyio.move_on_after(drain_s) as drain:
        while await thread.run(partial(_is_running_after, query, running)):
            await anyio.sleep(0.02)
    if drain.cancelled_caught:
        logger().warning("a micro-batch is cut off; it runs again at the next start", query=name, drain_s=drain_s)
    await thread.run(query.stop)


def _is_running_after(query: StreamingQuery, batch: int | None) -> bool:
    # In a backlog each batch follows the one before at once, too soon for a pause between them to be seen.
    return query.isActive and bool(query.status["isTriggerActive"]) and _ended_batch(query) == batch


def _ended_batch(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return None if progress is None else progress.batchId
