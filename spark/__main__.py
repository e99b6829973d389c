"""``python -m spark JOB``: live statistics of the tweets; ``backfill``, ``console``, ``plot`` and ``prepare`` beside them."""

import sys
from contextlib import suppress
from functools import partial

import anyio
from anyio import to_thread
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker import BrokerLost, BrokerUnreachable
from broker.errors import StartError
from broker.program import ready, run
from spark.checkpoint import claimed
from spark.driver_thread import DriverThread
from spark.jobs import Job, checkpoint_of, jobs_of, sources_of, start_query
from spark.link import see_broker
from spark.session import build_session, end_session, has_java
from spark.settings import SparkSettings
from spark.supervision import keep_running

_SEEN_WITHIN_S = 10.0
_LOOK_S = 0.5


async def serve(settings: SparkSettings, stop: anyio.Event) -> None:
    """Run the job's queries until `stop`, and end them in order. Raises StartError and BrokerUnreachable."""
    jobs = jobs_of(settings.job)
    await to_thread.run_sync(_see_broker, settings, *jobs)
    with claimed([checkpoint_of(job, settings) for job in jobs]), DriverThread() as thread:
        session = await thread.run(partial(build_session, settings.master, ui_port=settings.ui_port, jit=settings.jit))
        try:
            await run_jobs(settings, stop, session, thread)
        finally:
            with anyio.CancelScope(shield=True):
                await thread.run(partial(end_session, session))


async def run_jobs(settings: SparkSettings, stop: anyio.Event, session: SparkSession, thread: DriverThread) -> None:
    async with anyio.create_task_group() as tasks:
        # From the first on: one that fails because Java has gone would be started again for ever.
        tasks.start_soon(_see_java, session, stop)
        for job in jobs_of(settings.job):
            started = anyio.Event()
            start = partial(_start, session, job, settings)
            keep = partial(keep_running, job.name, thread, start, stop, drain_s=settings.drain, started=started)
            tasks.start_soon(keep)
            tasks.start_soon(_set_when, stop, started)
            await started.wait()
        if not stop.is_set():
            page = await thread.run(lambda: session.sparkContext.uiWebUrl)
            ready("spark", page or settings.master)


async def _see_java(session: SparkSession, stop: anyio.Event) -> None:
    while not stop.is_set():
        if not has_java(session):
            raise StartError("Java has ended, killed or out of memory; start again, and the jobs go on where they were")
        with anyio.move_on_after(_LOOK_S):
            await stop.wait()


def _start(session: SparkSession, job: Job, settings: SparkSettings) -> StreamingQuery:
    # A query that failed may have been refused by a broker that has other users now, which would go on for ever.
    with suppress(BrokerUnreachable, BrokerLost):
        _see_broker(settings, job, within_s=0)
    return start_query(session, job, settings)


def _see_broker(settings: SparkSettings, *jobs: Job, within_s: float = _SEEN_WITHIN_S) -> None:
    topics = {topic for job in jobs for topic in (*sources_of(job, settings), job.topic)}
    see_broker(settings.login(), sorted(topics), within_s=within_s)


async def _set_when(event: anyio.Event, other: anyio.Event) -> None:
    await event.wait()
    other.set()


def _main() -> int:
    # Each on its own, since they need different extras.
    match sys.argv[1:2]:
        case ["backfill"]:
            from spark.backfill.run import backfill  # noqa: PLC0415
            from spark.backfill.settings import BackfillSettings  # noqa: PLC0415

            return run(BackfillSettings, backfill, sys.argv[2:])
        case ["console"]:
            from spark.console import ConsoleSettings, show  # noqa: PLC0415

            return run(ConsoleSettings, show, sys.argv[2:])
        case ["plot"]:
            from spark.plot.settings import PlotSettings  # noqa: PLC0415
            from spark.plot.write import write_plot  # noqa: PLC0415

            return run(PlotSettings, write_plot, sys.argv[2:])
        case ["prepare"]:
            from spark.prepare import PrepareSettings, prepare  # noqa: PLC0415

            return run(PrepareSettings, prepare, sys.argv[2:])
    return run(SparkSettings, serve)


if __name__ == "__main__":
    sys.exit(_main())
