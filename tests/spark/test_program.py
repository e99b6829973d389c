"""``python -m spark`` as a process: it starts, ends, refuses to start, and continues after kill -9."""

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark.apps.java import check_java
from spark.apps.settings import SparkSettings
from tests.spark import reference, samples
from tests.spark.comparison import assert_close, assert_totals, assert_tweets_equal
from tests.spark.topics import is_tweet, stored, totals, windows
from tests.support.processes import BrokerProcess, Process
from tests.support.waiting import until
from tweetwire import Event, SyncClient
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.flags import read_flags

WINDOW_MS = 2_000
LIVE_WINDOW_MS = 5_000
WINDOWS_A_KILL = 10
WITHIN_S = 420
KILLS = int(os.environ.get("TWEETWIRE_TEST_KILLS", "1"))

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900 + 450 * KILLS)]


@contextmanager
def spark(
    broker: BrokerProcess, folder: Path, *flags: str, job: str = "tweets-stats"
) -> Iterator[subprocess.Popen[bytes]]:
    where = ("--broker", broker.address, "--checkpoint", folder / "checkpoint")
    quiet = ("--ui-port", 0, "--log-json", "--master", "local[2]")
    program = Process(folder / "spark.log", "spark", job, *where, *quiet, *flags)
    program.launch()
    try:
        yield program.process
    finally:
        program.kill()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    def holds() -> bool:
        assert process.poll() is None, (folder / "spark.log").read_text()
        return condition()

    until(holds, WITHIN_S, (folder / "spark.log").read_text)


def publish(broker: BrokerProcess, windows: int) -> None:
    changes = samples.changes(30 * windows, span_ms=windows * WINDOW_MS)
    with SyncClient(broker.address) as client:
        client.publish_many("tweets", [Event(id=str(n), msg=change) for n, change in enumerate(changes)])


def test_killed_at_any_batch_it_publishes_every_window_once_and_ends_in_order(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    publish(broker, WINDOWS_A_KILL * KILLS + 2)
    rows = stored(broker, "tweets")
    expected = reference.tweets_stats([{**row, "watermark": 0} for row in rows], WINDOW_MS)
    flags = ["--window", f"{WINDOW_MS}ms", "--idle", "1s", "--trigger", "0s", "--rows-max", "120"]
    for kill in range(KILLS):
        # A fast machine may have published the last window before it is killed for the last time.
        wanted = min(len(windows(broker, "tweets_stats")) + 1, len(expected))
        with spark(broker, tmp_path, *flags) as process:
            wait_until(lambda: len(windows(broker, "tweets_stats")) >= wanted, process, tmp_path)  # noqa: B023 — called in this loop
            # Kill the program at another moment of the batch each time.
            until = time.monotonic() + 0.11 * (kill % 6)
            wait_until(lambda: time.monotonic() >= until, process, tmp_path)  # noqa: B023 — called in this loop
            process.kill()
    users = reference.users_stats([{**row, "watermark": 0} for row in rows], WINDOW_MS)
    log = tmp_path / "spark.log"
    began = len(log.read_text())
    # The other job begins here. Each job has a separate folder in the checkpoint.
    with spark(broker, tmp_path, *flags, job="all") as process:
        wait_until(lambda: "spark ready on" in log.read_text()[began:], process, tmp_path)
        wait_until(lambda: len(windows(broker, "tweets_stats")) >= len(expected), process, tmp_path)
        wait_until(lambda: len(windows(broker, "users_stats")) >= len(users), process, tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    # PySpark's accumulator server may log a traceback if the JVM ended first. So look only for tracebacks of our code.
    assert not re.search(r'File "[^"]*/(spark|broker)/', log.read_text()[began:])
    found = windows(broker, "tweets_stats")
    assert_tweets_equal(found, expected)
    assert_totals(totals(broker, "tweets_stats"), expected)
    assert_close(windows(broker, "users_stats"), {reference.iso(start): window for start, window in users.items()})
    assert_totals(totals(broker, "users_stats"), users, reference.users_totals)
    assert sum(window["tweets"] for window in found.values()) == sum(map(is_tweet, rows))


def test_killed_while_tweets_come_it_publishes_every_window_once_and_the_last_ones_by_the_clock(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    flags = ["--window", f"{LIVE_WINDOW_MS}ms", "--idle", "1s", "--trigger", "1s"]
    with publishing(broker):
        for kill in range(KILLS):
            wanted = len(windows(broker, "tweets_stats")) + 2
            with spark(broker, tmp_path, *flags) as process:
                wait_until(lambda: len(windows(broker, "tweets_stats")) >= wanted, process, tmp_path)  # noqa: B023 — called in this loop
                # Each run begins in another part of a window.
                until = time.monotonic() + 0.77 * (kill % 7)
                wait_until(lambda: time.monotonic() >= until, process, tmp_path)  # noqa: B023 — called in this loop
                if kill % 2:
                    os.kill(java_of(process), signal.SIGKILL)
                    assert process.wait(WITHIN_S) == 2
                    assert "Java has ended" in (tmp_path / "spark.log").read_text().splitlines()[-1]
                process.kill()
    rows = stored(broker, "tweets")
    expected = reference.tweets_stats([{**row, "watermark": 0} for row in rows], LIVE_WINDOW_MS)
    with spark(broker, tmp_path, *flags) as process:
        wait_until(lambda: len(windows(broker, "tweets_stats")) >= len(expected), process, tmp_path)
        # Signal the group, as service managers do: Java gets the signal, too, and may end first.
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0, (tmp_path / "spark.log").read_text()
    assert_tweets_equal(windows(broker, "tweets_stats"), expected)
    assert_totals(totals(broker, "tweets_stats"), expected)


def java_of(process: subprocess.Popen[bytes]) -> int:
    """The Java that a driver has started."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    children = [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
    return next(pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "java")


@contextmanager
def publishing(broker: BrokerProcess) -> Iterator[None]:
    """Publish fifty tweets a second, each with the current time, until the end of the block."""
    changes, end = samples.changes(1_000), threading.Event()

    def publish_on() -> None:
        with SyncClient(broker.address) as client:
            for number in itertools.count():
                change = {**changes[number % len(changes)], "op": "insert", "at": time.time_ns() // 1_000_000}
                client.publish("tweets", Event(id=str(number), msg=change))
                if end.wait(0.02):
                    return

    with ThreadPoolExecutor(1) as pool:
        publisher = pool.submit(publish_on)
        try:
            yield
        finally:
            end.set()
            publisher.result(WITHIN_S)


def refused(*flags: str, **environment: str) -> str:
    """Run the program with settings with which it cannot start. Return its one error message."""
    command = [sys.executable, "-m", "spark", "all", *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_without_a_broker_the_program_reports_that() -> None:
    assert "no broker answers at 127.0.0.1:1" in refused("--broker", "127.0.0.1:1")


def test_without_java_it_says_what_to_install(broker: BrokerProcess, tmp_path: Path) -> None:
    sentence = refused("--broker", broker.address, JAVA_HOME=str(tmp_path))
    assert "no bin/java" in sentence
    assert "install Java 17 or 21" in sentence


def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartError, match="is Java 8"):
        check_java()


@pytest.mark.parametrize(
    ("start", "sentence"), [("yesterday", "--from"), ("17", "--from.*an offset belongs to one topic")]
)
def test_a_wrong_start_is_refused(start: str, sentence: str) -> None:
    with pytest.raises(StartError, match=sentence):
        read_flags(SparkSettings, ["all", "--from", start])
