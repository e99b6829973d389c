"""Keeping queries running: the message about a failure, and the start of the other queries."""

from collections.abc import Callable
from typing import cast

import anyio
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from structlog.testing import capture_logs

from spark.apps.driver_thread import DriverThread
from spark.apps.session import stop_with_java
from spark.apps.supervision import keep_running
from tweetwire.protocol.errors import StartError

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
        (
            LATEST_OFFSET.format("spark.connector.errors.DataLossError: gone"),
            "spark.connector.errors.DataLossError: gone",
        ),
        ("Multiple queries use it.\n\tat org.apache", "Multiple queries use it."),
    ],
)
async def test_a_query_that_does_not_start_logs_the_reason_and_holds_up_no_other(text: str, sentence: str) -> None:
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
    assert [(log["event"], log["error"]) for log in logs] == [("query failed, restarting", sentence)]


async def test_an_option_that_cannot_work_ends_the_program_with_its_sentence() -> None:
    start = failing(LATEST_OFFSET.format("spark.connector.errors.OptionError: topic tweets: this; do that"))
    with (
        DriverThread() as thread,
        anyio.fail_after(30),
        capture_logs() as logs,
        pytest.raises(StartError, match=r"^one: topic tweets: this; do that$"),
    ):
        await keep_running("one", thread, start, anyio.Event(), drain_s=0, started=anyio.Event())
    assert not logs


class Java:
    """A stand-in for the Spark session that `has_java` checks. Its Java process ends at check number `looks`."""

    def __init__(self, looks: int, then: Callable[[], None] = lambda: None) -> None:
        self.sparkContext = self
        self._gateway = self
        self.proc = self
        self._looks, self._then = looks, then

    def poll(self) -> int | None:
        self._looks -= 1
        if self._looks == 0:
            self._then()
        return None if self._looks > 0 else 143


@pytest.mark.parametrize(("looks", "is_stopping"), [(1, True), (100, True), (5, False)])
async def test_a_failure_while_java_ends_with_the_program_is_an_orderly_stop(looks: int, is_stopping: bool) -> None:
    stop = anyio.Event()
    if is_stopping:
        stop.set()
    # If the program was not stopped earlier, it is stopped when Java has ended.
    java = Java(looks, stop.set)
    with anyio.fail_after(30), capture_logs() as logs:
        async with stop_with_java(cast(SparkSession, java), stop):
            raise RuntimeError("SparkSession does not exist in the JVM")
    assert [log["event"] for log in logs] == ["Java ended first; interrupted batches run again at the next start"]


@pytest.mark.parametrize("looks", [1, 1_000_000])
async def test_a_failure_without_a_stop_is_raised(looks: int) -> None:
    with anyio.fail_after(30), pytest.raises(RuntimeError, match="a bug"):
        async with stop_with_java(cast(SparkSession, Java(looks)), anyio.Event()):
            raise RuntimeError("a bug")
