"""The Spark session, set up for one machine unless the master says otherwise."""

import atexit
import os
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from broker.errors import StartError
from broker.program import logger
from spark.archive import write_archive
from spark.errors import sentence_of
from spark.home import prepared_classes, use_lean_home
from spark.java import check_java
from spark.source import register

__all__ = ["build_session", "end_session", "has_java", "local_cores"]

_LOG = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
_JIT = {
    "quick": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Ten times the usual calls before a method is compiled again, at length: what plans a query is called that often in
    # the first dozens of micro-batches, and compiling it took as much time as the batches did. Loops are not counted so.
    "full": "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000",
}
_CLUSTER_PARTITIONS = 8
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
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
    """Start (or get) the session with ``format("tweetwire")`` registered.

    `ui_port` 0 turns Spark's page off. `scratch` holds shuffle and state files while it runs. `jit` is how Java compiles
    on a local master: `quick` halves the processor time until the first windows, `full` is for backlogs of many
    millions. `write_classes` is the archive of Java's classes that `spark.prepare` makes. A cluster's executors get this
    package sent; their Python is PYSPARK_PYTHON, or one at the path of this one. Raises StartError where Java is missing
    or wrong, or the master does not answer.
    """
    java_version = check_java()
    # Workers would otherwise start with the system's Python, which does not have this package's libraries.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local_cores(master) is not None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    use_lean_home()
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
    return session


def has_java(session: SparkSession) -> bool:
    """Say whether the Java that this program started for its session runs."""
    gateway = session.sparkContext._gateway
    return gateway is not None and (gateway.proc is None or gateway.proc.poll() is None)


def end_session(session: SparkSession) -> None:
    """Stop a session; there is nothing to stop where Java has ended, as by a signal to all of a service's processes."""
    with suppress(Py4JNetworkError, ConnectionError):
        session.stop()


def local_cores(master: str) -> int | None:
    """Give the cores of a local master (``local``, ``local[2]``, ``local[*]``), None for a cluster."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if match is None:
        return None
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)


def _send_package(session: SparkSession) -> None:
    """Give the executors this package, before the data source is registered, which takes along what there is by then."""
    # Executors that come later fetch it, too, so it stays until the program ends.
    folder = Path(tempfile.mkdtemp(prefix="tweetwire-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    session.sparkContext.addPyFile(str(write_archive(folder / "tweetwire.zip")))


def _classes(java_version: str, written: Path | None) -> list[str]:
    if written is not None:
        # It would name every class that an archive cannot hold.
        return [f"-XX:ArchiveClassesAtExit={written}", "-Xlog:disable"]
    try:
        archive = prepared_classes(java_version)
    except ValueError as error:
        logger().warning("Spark starts slowly until you run python -m spark prepare", reason=str(error))
        return []
    return [] if archive is None else [f"-XX:SharedArchiveFile={archive}"]


def _configuration(master: str, ui_port: int, scratch: Path | None, java: list[str]) -> dict[str, str | int]:
    configuration: dict[str, str | int] = {
        "spark.ui.enabled": "true" if ui_port else "false",
        "spark.ui.port": ui_port or 4040,
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java),
        "spark.sql.session.timeZone": "UTC",
        # Windows of a backlog are more than 128 groups, where sorting would begin.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": 100_000,
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": 20,
        # Its filter on the size of an exploded array computes the array twice.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.InferFiltersFromGenerate",
    }
    if scratch is not None:
        configuration["spark.local.dir"] = str(scratch)
    cores = local_cores(master)
    # More partitions than cores are loss, and Spark's own 200 is much.
    configuration["spark.sql.shuffle.partitions"] = cores or _CLUSTER_PARTITIONS
    if cores is not None:
        # The one that is Spark's own choice starts a `readlink` for each end of each rename, forty times a micro-batch.
        configuration["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILES
        configuration["spark.driver.host"] = configuration["spark.driver.bindAddress"] = "127.0.0.1"
    return configuration
