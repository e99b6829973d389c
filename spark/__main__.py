"""``python -m spark JOB`` computes live statistics of tweets; other commands are backfill, console, plot and prepare."""

import sys
from contextlib import suppress
from functools import partial

import anyio
from anyio import to_thread

from tweetwire import BrokerLost, BrokerUnreachable
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.extras import needs_extra
from tweetwire.runtime.program import ready, run

with needs_extra("Spark", "spark"):
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from spark.apps.checkpoint import claimed
    from spark.apps.driver_thread import DriverThread
    from spark.apps.jobs import StatisticsJob, checkpoint_of, jobs_of, sources_of, start_query
    from spark.apps.session import build_session, build_unless_stopped, end_session, has_java, stop_with_java
    from spark.apps.settings import SparkSettings
    from spark.apps.supervision import keep_running
    from spark.connector.link import see_broker

_SEEN_WITHIN_S = 10.0
_LOOK_S = 0.5


async def serve(settings: SparkSettings, stop: anyio.Event) -> None:
    """Run the job's queries until `stop`, and end them in order. Raises StartError and BrokerUnreachable."""
    jobs = jobs_of(settings.job)
    await to_thread.run_sync(_see_broker, settings, *jobs)
    with claimed([checkpoint_of(job, settings) for job in jobs]), DriverThread() as thread:
        build = partial(build_session, settings.master, ui_port=settings.ui_port, jit=settings.jit)
        session = await build_unless_stopped(build, thread, stop)
        if session is None:
            return
        try:
            async with stop_with_java(session, stop):
                await run_jobs(settings, stop, session, thread)
        finally:
            with anyio.CancelScope(shield=True):
                await thread.run(partial(end_session, session))


async def run_jobs(settings: SparkSettings, stop: anyio.Event, session: SparkSession, thread: DriverThread) -> None:
    async with anyio.create_task_group() as tasks:
        # Watch Java before the first query starts: a query that fails because Java has ended would be restarted forever.
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
            raise StartError("Java has ended (killed or out of memory); start again to continue the jobs")
        with anyio.move_on_after(_LOOK_S):
            await stop.wait()


def _start(session: SparkSession, job: StatisticsJob, settings: SparkSettings) -> StreamingQuery:
    # A query may have failed because the broker's users have changed; without this check, it would be restarted forever.
    with suppress(BrokerUnreachable, BrokerLost):
        _see_broker(settings, job, within_s=0)
    return start_query(session, job, settings)


def _see_broker(settings: SparkSettings, *jobs: StatisticsJob, within_s: float = _SEEN_WITHIN_S) -> None:
    topics = {topic for job in jobs for topic in (*sources_of(job, settings), job.topic)}
    see_broker(settings.login(), sorted(topics), within_s=within_s)


async def _set_when(event: anyio.Event, other: anyio.Event) -> None:
    await event.wait()
    other.set()


def _main() -> int:
    # Each command imports its own modules only, since they need different extras.
    match sys.argv[1:2]:
        case ["backfill"]:
            with needs_extra("the backfill", "backfill"):
                from spark.apps.backfill.run import backfill  # noqa: PLC0415
                from spark.apps.backfill.settings import BackfillSettings  # noqa: PLC0415

            return run(BackfillSettings, backfill, sys.argv[2:], is_service=False)
        case ["console"]:
            from spark.apps.console import ConsoleSettings, show  # noqa: PLC0415

            return run(ConsoleSettings, show, sys.argv[2:], is_service=False)
        case ["plot"]:
            with needs_extra("the plot", "plot"):
                from spark.apps.plot.settings import PlotSettings  # noqa: PLC0415
                from spark.apps.plot.write import write_plot  # noqa: PLC0415

            return run(PlotSettings, write_plot, sys.argv[2:], is_service=False)
        case ["prepare"]:
            from spark.apps.prepare import PrepareSettings, prepare  # noqa: PLC0415

            return run(PrepareSettings, prepare, sys.argv[2:], is_service=False)
    return run(SparkSettings, serve)


if __name__ == "__main__":
    sys.exit(_main())
