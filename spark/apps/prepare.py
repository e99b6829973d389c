"""``python -m spark prepare`` writes the archive of Java's classes, by running the jobs once on a separate broker.

Half of Spark's starting time is Java loading about fifteen thousand classes. Java can write the classes that a process has
loaded to a file ("application class-data sharing"), and map that file into later processes.
"""

import os
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio import to_thread
from pyspark.sql import SparkSession

from spark.apps.home import CLASSES, PREPARED, keep_classes, make_prepared_home
from spark.apps.java import check_java
from spark.apps.jobs import JOBS, start_query
from spark.apps.locks import locked
from spark.apps.session import build_session
from spark.apps.settings import SparkSettings
from tweetwire import BrokerError, Event, SyncClient
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.launching import ProgramProcess, module_argv
from tweetwire.runtime.program import ProgramSettings, logger, settings_config

__all__ = ["PrepareSettings", "prepare"]

_WITHIN_S = 300.0
_ENDS_WITHIN_S = 120.0
_PARTIAL = CLASSES.with_suffix(".partial")
_WINDOW = "1s"
_OTHERS_SETTINGS = ("TWEETWIRE_BROKER_", "TWEETWIRE_SPARK_", "SPARK_HOME", "SPARK_CONF_DIR")
"""Environment variables that are removed for this run.

They are meant for later runs, and may name another broker, other topics, or a Spark with other classes.
"""
_PAUSE_S = 0.2
_PAUSE_WITHIN_S = 5.0
_LOOK_S = 0.01

log = logger()


class PrepareSettings(ProgramSettings):
    """Write Java's archive of the classes that Spark loads; every later start on a local master takes half as long.

    It takes about a minute, and 180 MB beside the Python environment. Run it again after an update of Spark or Java: Java
    accepts an archive only of its own version and the same jars, and starts without one otherwise.
    """

    model_config = settings_config("python -m spark prepare")


async def prepare(settings: PrepareSettings, stop: anyio.Event) -> None:
    """Write the archive, or give up at `stop`. Raises StartError if Java is missing or the folder cannot be written."""
    await to_thread.run_sync(_prepare, check_java(), stop)


def _prepare(java_version: str, stop: anyio.Event) -> None:
    for name in [*os.environ]:
        if name.startswith(_OTHERS_SETTINGS):
            del os.environ[name]
    try:
        PREPARED.mkdir(parents=True, exist_ok=True)
        with locked(PREPARED / "lock", f"another python -m spark prepare is running in {PREPARED}"):
            make_prepared_home()
            try:
                _write_classes(_PARTIAL, java_version, stop)
            finally:
                _PARTIAL.unlink(missing_ok=True)
    except (OSError, BrokerError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartError(f"cannot prepare {PREPARED}: {reason}; Spark starts more slowly without it") from error


def _write_classes(partial: Path, java_version: str, stop: anyio.Event) -> None:
    with TemporaryDirectory(prefix="tweetwire-prepare-") as folder, _broker(Path(folder)) as broker:
        session = build_session("local[2]", scratch=Path(folder), write_classes=partial)
        gateway = session.sparkContext._gateway
        assert gateway is not None  # noqa: S101 — only a Spark Connect session has no gateway
        java = gateway.proc
        try:
            _run_jobs(session, broker.address, Path(folder), stop)
        finally:
            session.stop()
            # Java ends when its input is closed, and then writes the archive.
            java.stdin.close()
            _see_end(java)
    if stop.is_set():
        return
    if not partial.is_file():
        raise StartError("Java has not written an archive of its classes; Spark starts more slowly without it")
    keep_classes(partial, java_version)
    log.info("prepared", file=str(CLASSES), bytes=CLASSES.stat().st_size)


def _see_end(java: "subprocess.Popen[bytes]") -> None:
    try:
        java.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        # A Java that cannot write the whole file hangs.
        java.kill()
        java.wait()
        raise StartError("Java did not finish writing its archive; check for a full disk, then try again") from None


def _run_jobs(session: SparkSession, address: str, folder: Path, stop: anyio.Event) -> None:
    words = ["all", f"--broker={address}", f"--checkpoint={folder / 'checkpoint'}", f"--window={_WINDOW}", "--idle=1s"]
    settings = SparkSettings(_cli_parse_args=words)
    queries = [start_query(session, job, settings) for job in JOBS.values()]
    deadline = time.monotonic() + _WITHIN_S
    with SyncClient(address, reconnect_s=0) as client:
        while not stop.is_set() and any(not client.read(job.topic, 0).events for job in JOBS.values()):
            if time.monotonic() > deadline or not all(query.isActive for query in queries):
                raise StartError("the jobs published no statistics; run python -m spark all to see the reason")
            client.publish("tweets", _change())
            time.sleep(_PAUSE_S)
    for query in queries:
        # The pause between two triggers is a fraction of a second, so look often enough to see it. If a batch is cut off, the
        # archive only lacks some classes.
        until = time.monotonic() + _PAUSE_WITHIN_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
            time.sleep(_LOOK_S)
        query.stop()


def _change() -> Event:
    at = time.time_ns() // 1_000_000
    document = {"lang": "en", "hashtags": ["a", "b"], "sentiment": 0.5, "engagement": 0.1, "user": {"id_str": "1"}}
    return Event(id=str(at), msg={"op": "insert", "at": at, "document": document})


def _broker(folder: Path) -> ProgramProcess:
    topics = [flag for job in JOBS.values() for flag in ("--topic", job.topic)]
    words = ["--port=0", "--metrics-port=0", f"--data-dir={folder / 'broker'}", "--topic=tweets", "--topic=users"]
    return ProgramProcess(module_argv("broker", *words, *topics), folder / "broker.log")
