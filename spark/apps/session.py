"""Make the Spark session, configured for one machine unless the master is a cluster."""

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark.apps.archive import write_archive
from spark.apps.driver_thread import DriverThread
from spark.apps.home import prepared_classes, use_lean_home
from spark.apps.java import check_java
from spark.connector.errors import sentence_of
from spark.connector.source import register
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["build_session", "build_unless_stopped", "end_session", "has_java", "local_cores", "stop_with_java"]

_LOG = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
_JIT = {
    "quick": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Compile a method fully only after ten times the usual number of calls. In the first dozens of micro-batches, the methods
    # of query planning reach the usual number, and compiling them takes as long as the batches. Loops are not affected.
    "full": "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000",
}
_CLUSTER_PARTITIONS = 8
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_SAME_STOP_S = 5.0
"""If `stop` is set within this time after Java has ended, both have the same cause."""
_JAVA_ENDS_WITHIN_S = 1.0
"""The longest time between the failure of a call and the end of the Java process that should have answered it."""
_HOOKS_WITHIN_S = 30.0
_LOOK_S = 0.02
_STATE = "spark.sql.streaming.stateStore"


def build_session(
    master: str = "local[*]",
    *,
    app: str = "tweetwire",
    ui_port: int = 0,
    scratch: Path | None = None,
    jit: Literal["quick", "full"] = "quick",
    write_classes: Path | None = None,
) -> SparkSession:
    """Start the session with ``format("tweetwire")`` registered, or return the running one.

    A cluster's executors receive this package from the driver. Their Python is PYSPARK_PYTHON, or else the one at the path
    of this program's Python.

    Args:
        master: Spark's master, such as ``local[2]`` or ``spark://HOST:PORT``.
        app: the application's name.
        ui_port: the port of Spark's page, 0 for none.
        scratch: the folder of shuffle and state files while Spark runs, None for Spark's default.
        jit: how Java compiles on a local master. `quick` halves the processor time until the first windows; `full` is for
            backlogs of many millions.
        write_classes: the file to which Java writes the archive of its classes at its end; for `spark.apps.prepare`.

    Raises:
        StartError: Java is missing or too old, or the master does not answer.
    """
    java_version = check_java()
    # Otherwise workers would start with the system's Python, which lacks this package's libraries.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local_cores(master) is not None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    use_lean_home()
    _silence_py4j()
    builder = SparkSession.builder.master(master).appName(app)
    java = [_LOG] if local_cores(master) is None else [_LOG, *_JIT[jit].split(), *_classes(java_version, write_classes)]
    for name, value in _configuration(master, ui_port, scratch, java).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise StartError(f"Spark does not start on {master}: {sentence_of(error)}") from error
    if local_cores(master) is None:
        _send_package(session)
    register(session)
    _expect_end_of_java(session)
    return session


def has_java(session: SparkSession) -> bool:
    """Return whether the Java process that this program started for its session is running."""
    gateway = session.sparkContext._gateway
    return gateway is not None and (gateway.proc is None or gateway.proc.poll() is None)


def end_session(session: SparkSession) -> None:
    """Stop a session; do nothing if Java has ended, for example by a signal to all processes of a service."""
    try:
        session.stop()
    except (PySparkException, Py4JError, ConnectionError) as error:
        # A Java process that is ending answers with an error, or not at all.
        logger().debug("Java did not stop the session", reason=sentence_of(error))


async def build_unless_stopped(
    build: Callable[[], SparkSession], thread: DriverThread, stop: anyio.Event
) -> SparkSession | None:
    """Build a session on the driver's thread. Return None if it failed because Java was stopped too, during its start."""
    try:
        return await thread.run(build)
    except Exception:
        with anyio.move_on_after(_JAVA_ENDS_WITHIN_S):
            await stop.wait()
        if not stop.is_set():
            raise
        return None


@asynccontextmanager
async def stop_with_java(session: SparkSession, stop: anyio.Event) -> AsyncIterator[None]:
    """Suppress an exception of the block if it is part of a stop: Java has ended, and this program must end too.

    A signal to all processes of a service reaches Java at about the same time as this program. Either may end first, and any
    call in the driver may fail.
    """
    try:
        yield
    except Exception:
        if not await _are_both_ending(session, stop):
            raise
        logger().info("Java ended first; interrupted batches run again at the next start")


async def _are_both_ending(session: SparkSession, stop: anyio.Event) -> bool:
    began = anyio.current_time()
    while has_java(session):
        # On a signal, Java first runs its shutdown hooks, and meanwhile answers each call with an error.
        within_s = _HOOKS_WITHIN_S if stop.is_set() else _JAVA_ENDS_WITHIN_S
        if anyio.current_time() > began + within_s:
            return False
        await anyio.sleep(_LOOK_S)
    with anyio.move_on_after(_SAME_STOP_S):
        await stop.wait()
    return stop.is_set()


def _expect_end_of_java(session: SparkSession) -> None:
    """Make PySpark's accumulator server log one line without a traceback when Java's end breaks its connection."""

    def handle_error(request: Any, address: Any) -> None:
        error = sys.exc_info()[1]
        log = logger().debug if isinstance(error, EOFError | ConnectionError) else logger().warning
        log("connection to the accumulator server ended early", reason=f"{type(error).__name__}: {error}")

    server = session.sparkContext._accumulatorServer
    server.handle_error = handle_error  # type: ignore[assignment, method-assign]


def _silence_py4j() -> None:
    """Stop Py4J from logging, with a traceback, the exceptions that it raises anyway."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # Py4J logs some messages to the root logger.
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def local_cores(master: str) -> int | None:
    """Return the number of cores of a local master (``local``, ``local[2]``, ``local[*]``), None for a cluster."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if match is None:
        return None
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)


def _send_package(session: SparkSession) -> None:
    """Send the executors this package. Must run before the data source is registered, since that copies the package list."""
    # Executors that join later fetch it too, so the file stays until the program ends.
    folder = Path(tempfile.mkdtemp(prefix="tweetwire-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    session.sparkContext.addPyFile(str(write_archive(folder / "tweetwire.zip")))


def _classes(java_version: str, written: Path | None) -> list[str]:
    if written is not None:
        # Without `disable`, Java would log every class that an archive cannot hold.
        return [f"-XX:ArchiveClassesAtExit={written}", "-Xlog:disable"]
    try:
        archive = prepared_classes(java_version)
    except ValueError as error:
        logger().warning("Spark starts slowly; run python -m spark prepare", reason=str(error))
        return []
    return [] if archive is None else [f"-XX:SharedArchiveFile={archive}"]


def _configuration(master: str, ui_port: int, scratch: Path | None, java: list[str]) -> dict[str, str | int]:
    configuration: dict[str, str | int] = {
        "spark.ui.enabled": "true" if ui_port else "false",
        "spark.ui.port": ui_port or 4040,
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java),
        "spark.sql.session.timeZone": "UTC",
        # A backlog has more than 128 windows, the number of groups at which Spark would switch to sorting.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": 100_000,
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": 20,
        # This optimizer rule filters by the size of an exploded array, so Spark would compute the array twice.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.InferFiltersFromGenerate",
    }
    if scratch is not None:
        configuration["spark.local.dir"] = str(scratch)
    cores = local_cores(master)
    # More partitions than cores only cost time, and Spark's default is 200.
    configuration["spark.sql.shuffle.partitions"] = cores or _CLUSTER_PARTITIONS
    if cores is not None:
        # Spark's default class starts a `readlink` process for both ends of each renaming, forty times a micro-batch.
        configuration["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILES
        configuration["spark.driver.host"] = configuration["spark.driver.bindAddress"] = "127.0.0.1"
    return configuration
