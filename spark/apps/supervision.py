"""Keep a query running: restart it when it fails, and end it between two batches."""

import time
from collections.abc import Callable
from functools import partial

import anyio
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from spark.apps.driver_thread import DriverThread
from spark.connector.errors import OptionError, sentence_of
from spark.connector.lag import Lag
from tweetwire.backoff import Backoff
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["keep_running"]

_STEADY_S = 300.0
"""After running this long, a query counts as repaired, and the pauses between restarts begin with the shortest again."""
_LOOK_S = 0.25
_LASTING = f"{OptionError.__module__}.{OptionError.__name__}"
"""The error of an option, which no restart repairs. Spark's Python processes report it as text."""


async def keep_running(
    name: str,
    thread: DriverThread,
    start: Callable[[], StreamingQuery],
    stop: anyio.Event,
    *,
    drain_s: float,
    started: anyio.Event,
) -> None:
    """Run a query until `stop`; after a failure, restart it from its checkpoint, with growing pauses.

    Args:
        name: the query's name, for logs.
        thread: the thread on which Spark is called.
        start: starts the query.
        stop: ends the query when set.
        drain_s: seconds that the running batch has to finish at the end. A batch that is cut off runs again at the next
            start, so nothing is lost.
        started: set when the query runs or has failed for the first time, so that other queries stop waiting.

    Raises:
        StartError: an option is not valid, so that no restart can succeed.
    """
    backoff = Backoff(first_s=1.0, max_s=30.0)
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
        if time.monotonic() - began > _STEADY_S:
            backoff.reset()
        pause_s = backoff.next_pause_s()
        logger().error("query failed, restarting", query=name, pause_s=round(pause_s, 1), error=sentence)
        with anyio.move_on_after(pause_s):
            await stop.wait()
    return None


async def _watch(name: str, thread: DriverThread, query: StreamingQuery, stop: anyio.Event) -> bool:
    """Wait until `stop` (return True) or the query's own end (return False)."""
    lag = Lag(name)
    while not stop.is_set():
        if not await thread.run(lambda: query.isActive):
            return False
        if lag.is_due:
            lag.log_progress(await thread.run(lambda: query.lastProgress))
        with anyio.move_on_after(_LOOK_S):
            await stop.wait()
    return True


async def _end(name: str, thread: DriverThread, query: StreamingQuery, drain_s: float) -> None:
    running = await thread.run(partial(_ended_batch, query))
    with anyio.move_on_after(drain_s) as drain:
        while await thread.run(partial(_is_running_after, query, running)):
            await anyio.sleep(0.02)
    if drain.cancelled_caught:
        logger().warning("micro-batch cut off, runs again at the next start", query=name, drain_s=drain_s)
    await thread.run(query.stop)


def _is_running_after(query: StreamingQuery, batch: int | None) -> bool:
    # In a backlog, each batch follows the previous one so quickly that the pause between them may not be seen.
    return query.isActive and bool(query.status["isTriggerActive"]) and _ended_batch(query) == batch


def _ended_batch(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return None if progress is None else progress.batchId
