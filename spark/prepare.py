"""``python -m spark prepare``: the archive of Java's classes, made by running the jobs once on a broker of their own.

Half of the time until Spark answers is Java loading some fifteen thousand classes. Java can write down what a process
has loaded ("application class-data sharing") and map it into those that start later.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio import to_thread
from pyspark.sql import SparkSession

from broker import BrokerError, Event, SyncClient
from broker.errors import StartError
from broker.program import ProgramSettings, logger, settings_config
from spark.home import CLASSES, PREPARED, keep_classes, make_prepared_home
from spark.java import check_java
from spark.jobs import JOBS, start_query
from spark.locks import locked
from spark.session import build_session
from spark.settings import SparkSettings

__all__ = ["PrepareSettings", "prepare"]

_WITHIN_S = 300.0
_ENDS_WITHIN_S = 120.0
_PARTIAL = CLASSES.with_suffix(".partial")
_READY = re.compile(r"ready on ([^\s\"]+)")
_WINDOW = "1s"
_OTHERS_SETTINGS = ("TWEETWIRE_BROKER_", "TWEETWIRE_SPARK_", "SPARK_HOME", "SPARK_CONF_DIR")
"""They are for what runs later: for another broker and other topics, or a Spark whose classes these are not."""
_PAUSE_S = 0.2

log = logger()


class PrepareSettings(ProgramSettings):
    """Make Java's archive of the classes that Spark loads, with which every later start on a local master takes half as long.

    It takes about a minute and 180 MB beside the Python environment. Make it again when Spark or Java has changed: Java
    takes only the archive of its own version and of the same jars, and starts without where there is none.
    """

    model_config = settings_config("python -m spark prepare")


async def prepare(settings: PrepareSettings, stop: anyio.Event) -> None:
    """Make it, or leave off at `stop`. Raises StartError where Java is missing, or nothing can be written there."""
    await to_thread.run_sync(_prepare, check_java(), stop)


def _prepare(java_version: str, stop: anyio.Event) -> None:
    for name in [*os.environ]:
        if name.startswith(_OTHERS_SETTINGS):
            del os.environ[name]
    try:
        PREPARED.mkdir(parents=True, exist_ok=True)
        with locked(PREPARED / "lock", f"another python -m spark prepare is at work in {PREPARED}"):
            make_prepared_home()
            try:
                _write_classes(_PARTIAL, java_version, stop)
            finally:
                _PARTIAL.unlink(missing_ok=True)
    except (OSError, BrokerError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartError(f"cannot prepare {PREPARED}: {reason}; Spark starts without") from error


def _write_classes(partial: Path, java_version: str, stop: anyio.Event) -> None:
    with TemporaryDirectory(prefix="tweetwire-prepare-") as folder, _broker(Path(folder)) as address:
        session = build_session("local[2]", scratch=Path(folder), write_classes=partial)
        gateway = session.sparkContext._gateway
        assert gateway is not None  # noqa: S101 — only a session that connects has none
        java = gateway.proc
        try:
            _run_jobs(session, address, Path(folder), stop)
        finally:
            session.stop()
            # Java ends with its input, and writes the archive then.
            java.stdin.close()
            _see_end(java)
    if stop.is_set():
        return
    if not partial.is_file():
        raise StartError("this Java has written no archive of its classes; Spark starts without")
    keep_classes(partial, java_version)
    log.info("prepared", file=str(CLASSES), bytes=CLASSES.stat().st_size)


def _see_end(java: "subprocess.Popen[bytes]") -> None:
    try:
        java.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        # One that cannot write it all hangs.
        java.kill()
        java.wait()
        raise StartError("Java does not end with writing its archive; is the disk full? Spark starts without") from None


def _run_jobs(session: SparkSession, address: str, folder: Path, stop: anyio.Event) -> None:
    words = ["all", f"--broker={address}", f"--checkpoint={folder / 'checkpoint'}", f"--window={_WINDOW}", "--idle=1s"]
    settings = SparkSettings(_cli_parse_args=words)  # type: ignore[call-arg]
    queries = [start_query(session, job, settings) for job in JOBS.values()]
    deadline = time.monotonic() + _WITHIN_S
    with SyncClient(address) as client:
        while not stop.is_set() and any(not client.read(job.topic, 0).events for job in JOBS.values()):
            if time.monotonic() > deadline or not all(query.isActive for query in queries):
                raise StartError("the jobs gave no statistics; run python -m spark all to see why")
            client.publish("tweets", _change())
            time.sleep(_PAUSE_S)
    for query in queries:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        query.stop()


def _change() -> Event:
    at = time.time_ns() // 1_000_000
    document = {"lang": "en", "hashtags": ["a", "b"], "sentiment": 0.5, "engagement": 0.1, "user": {"id_str": "1"}}
    return Event(id=str(at), msg={"op": "insert", "at": at, "document": document})


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    """Give the address of a broker that ends with the block."""
    topics = [flag for job in JOBS.values() for flag in ("--topic", job.topic)]
    words = ["--port=0", "--metrics-port=0", f"--data-dir={folder / 'broker'}", "--topic=tweets", "--topic=users"]
    command = [sys.executable, "-m", "broker", *words, *topics]
    # Ctrl-C is for this program, which ends the broker when it has done with it.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None  # noqa: S101 — it was asked for
        try:
            said = ""
            for line in process.stderr:
                said += line
                if found := _READY.search(line):
                    break
            else:
                raise StartError(f"the broker does not start: {said.strip()}")
            yield found[1]
        finally:
            process.terminate()
