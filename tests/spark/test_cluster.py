"""``make cluster-test``: run a job on a Spark master and two workers whose Python has the libraries, but not this project."""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.spark import reference, samples
from tests.spark.comparison import assert_close, assert_totals, assert_tweets_equal
from tests.spark.topics import stored, totals, windows
from tests.support.processes import BrokerProcess, Process
from tests.support.waiting import until
from tweetwire import Event, SyncClient

WINDOW_MS = 5_000
WITHIN_S = 420
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
PORT = "--port", "0", "--webui-port", "0"
WORKERS = "worker-1", "worker-2"
STARTED = re.compile(r"Starting Spark master at (spark://\S+)")

OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        os.environ.get("TWEETWIRE_CLUSTER_TEST") != "1", reason="starts a Spark cluster, so it is for make cluster-test"
    ),
]


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that finds the installed libraries, but reads no .pth file and so not the project."""
    python = tmp_path / "bare" / "python"
    python.parent.mkdir()
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}" exec {base} "$@"\n')
    python.chmod(0o755)
    return python


@contextmanager
def daemon(folder: Path, name: str, *words: str) -> Iterator[None]:
    """Run a master or a worker of Spark as a process."""
    home = Path(pyspark.__file__).parent
    (folder / name).mkdir()
    settings = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    settings |= {"SPARK_WORKER_DIR": str(folder / name), "SPARK_LOCAL_DIRS": str(folder / name)}
    # Use this for the executors, too, since they end before an optimising compiler saves time.
    settings |= {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    with (folder / f"{name}.log").open("wb") as log:
        command = [str(home / "bin" / "spark-class"), *words]
        # Neither the folder nor the variables of this process lead to the project.
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder / name, env=OUTSIDE | settings)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(WITHIN_S)
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    # Wait for the logs, since the master's page answers before the workers have registered.
    log = (tmp_path / "master.log").read_text
    with ExitStack() as cluster:
        cluster.enter_context(daemon(tmp_path, "master", MASTER, "--host", "127.0.0.1", *PORT))
        until(lambda: STARTED.search(log()), WITHIN_S, log)
        address = STARTED.findall(log())[0]
        for name in WORKERS:
            words = (WORKER, "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", *PORT, address)
            cluster.enter_context(daemon(tmp_path, name, *words))
        until(lambda: log().count("Registering worker") == len(WORKERS), WITHIN_S, log)
        yield address


def executors(folder: Path) -> list[str]:
    """The workers whose executor has reached the driver."""
    logs = ((name, log) for name in WORKERS for log in (folder / name).glob("app-*/*/stderr"))
    return [name for name, log in logs if "Successfully registered with driver" in log.read_text()]


def missing(python: Path, module: str) -> bool:
    command: list[str | Path] = [python, "-c", f"import {module}"]
    done = subprocess.run(command, cwd=python.parent, env=OUTSIDE, capture_output=True, check=False)
    return b"ModuleNotFoundError" in done.stderr


def test_executors_without_the_project_give_the_reference_windows(
    broker: BrokerProcess, master: str, bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not missing(bare_python, "pyarrow")
    assert missing(bare_python, "broker")
    assert missing(bare_python, "spark")
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare_python))
    words = ["all", "--broker", broker.address, "--checkpoint", tmp_path / "checkpoint", "--master", master]
    # The clock must not close a window before all changes have arrived.
    timing = ["--window", f"{WINDOW_MS}ms", "--idle", "10s", "--trigger", "0s", "--ui-port", "0"]
    with ExitStack() as stack:
        job = Process(tmp_path / "spark.log", "spark", *words, *timing, "--log-json")
        job.launch()
        stack.callback(job.kill)
        # Wait for both workers before there is work, since a single executor might take all of it.
        until(lambda: executors(tmp_path) == [*WORKERS], WITHIN_S, job.log)
        with SyncClient(broker.address) as client:
            changes = samples.changes(1_200)
            client.publish_many("tweets", [Event(id=str(n), msg=change) for n, change in enumerate(changes)])
        rows = stored(broker, "tweets")
        tweets, users = reference.tweets_stats(rows, WINDOW_MS), reference.users_stats(rows, WINDOW_MS)
        until(lambda: len(windows(broker, "tweets_stats")) == len(tweets), WITHIN_S, job.log)
        until(lambda: len(windows(broker, "users_stats")) == len(users), WITHIN_S, job.log)
        assert job.terminate(WITHIN_S) == 0, job.log()
    assert_tweets_equal(windows(broker, "tweets_stats"), tweets)
    assert_totals(totals(broker, "tweets_stats"), tweets)
    assert_close(windows(broker, "users_stats"), {reference.iso(start): window for start, window in users.items()})
    assert [name for name in WORKERS if list((tmp_path / name).glob("app-*/*/tweetwire.zip"))] == [*WORKERS]
