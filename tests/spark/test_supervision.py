"""Keeping queries running: what a failure says, and whom it holds up."""

from collections.abc import Callable

import anyio
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from structlog.testing import capture_logs

from broker.errors import StartError
from spark.driver_thread import DriverThread
from spark.supervision import keep_running

pytestmark = pytest.mark.anyio

LATEST_OFFSET = """[STREAM_FAILED] Query terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when:
Traceback (most recent call last):
  File "/lib/pyspark/sql/streaming/python_streaming_source_runner.py", line 281, in main
    latest_offset_func(reader, infile, outfile)
    ^^^^^^^^^^^^^^^^^^^
{}
 SQLSTATE: 38000
"""


def failing(text: str) -> Callable[[], StreamingQuery]:
    def start() -> StreamingQuery:
        raise StreamingQueryException(text)

    return start


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (LATEST_OFFSET.format("KeyError: 'tweets'"), "KeyError: 'tweets'"),
        (LATEST_OFFSET.format("spark.errors.DataLossError: gone"), "spark.errors.DataLossError: gone"),
        ("Multiple queries use it.\n\tat org.apache", "Multiple queries use it."),
    ],
)
async def test_a_query_that_does_not_start_says_why_and_holds_up_no_other(text: str, sentence: str) -> None:
    stop, started = anyio.Event(), anyio.Event()
    with DriverThread() as thread, capture_logs() as logs:
        async with anyio.create_task_group() as tasks:

            async def keep() -> None:
                await keep_running("one", thread, failing(text), stop, drain_s=0, started=started)

            tasks.start_soon(keep)
            with anyio.fail_after(30):
                await started.wait()
                while not logs:
                    await anyio.sleep(0.01)
            stop.set()
    assert [(log["event"], log["error"]) for log in logs] == [("query failed, starts again", sentence)]


async def test_an_option_that_cannot_work_ends_the_program_with_its_sentence() -> None:
    start = failing(LATEST_OFFSET.format("spark.errors.OptionError: topic tweets: this; do that"))
    with (
        DriverThread() as thread,
        anyio.fail_after(30),
        capture_logs() as logs,
        pytest.raises(StartError, match=r"^one: topic tweets: this; do that$"),
    ):
        await keep_running("one", thread, start, anyio.Event(), drain_s=0, started=anyio.Event())
    assert not logs
