"""``python -m spark`` ends with status 0 and without a traceback, no matter which of its processes ends first."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.spark.apps.test_backfill import tweets
from tests.spark.test_program import WITHIN_S, java_of, publishing, spark, wait_until
from tests.support.processes import BrokerProcess, Process
from tests.support.waiting import until

STOPS = int(os.environ.get("TWEETWIRE_TEST_STOPS", "3"))
"""How often each program is stopped."""
BATCH_S = 1.5
START_S = 8.0
BETWEEN_S = 0.3
TWEETS = 5_000

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300 + 120 * STOPS)]

Running = subprocess.Popen[bytes]


def signal_group(process: Running) -> None:
    """Signal the whole process group, as service managers do."""
    os.killpg(process.pid, signal.SIGTERM)


def end_java_first(process: Running) -> None:
    with suppress(StopIteration):
        os.kill(java_of(process), signal.SIGTERM)
        pause(BETWEEN_S)
    process.send_signal(signal.SIGTERM)


def end_java_last(process: Running) -> None:
    with suppress(StopIteration):
        java = java_of(process)
        process.send_signal(signal.SIGTERM)
        pause(BETWEEN_S)
        with suppress(ProcessLookupError):
            os.kill(java, signal.SIGTERM)
        return
    process.send_signal(signal.SIGTERM)


WAYS: list[Callable[[Running], None]] = [signal_group, end_java_first, end_java_last]


def pause(seconds: float) -> None:
    """Sleep for a random time, since these tests stop programs at random moments and not after an event."""
    time.sleep(seconds)


def assert_ends_in_order(number: int, process: Running, log: Path, began: int) -> None:
    WAYS[number % len(WAYS)](process)
    status = process.wait(WITHIN_S)
    said = log.read_text()[began:]
    assert (status, "Traceback" in said) == (0, False), f"{number} {WAYS[number % len(WAYS)].__name__}: {said}"


def size_of(log: Path) -> int:
    return len(log.read_text()) if log.exists() else 0


def test_a_stop_at_any_moment_of_a_micro_batch(broker: BrokerProcess, tmp_path: Path) -> None:
    chance, log = Random(STOPS), tmp_path / "spark.log"
    flags = ["--window", "2s", "--idle", "1s", "--trigger", "0s"]
    with publishing(broker):
        for number in range(STOPS):
            began = size_of(log)
            with spark(broker, tmp_path, *flags, job="all") as process:
                wait_until(lambda: "spark ready on" in log.read_text()[began:], process, tmp_path)  # noqa: B023 — called in this loop
                pause(chance.uniform(0, BATCH_S))
                assert_ends_in_order(number, process, log, began)


def test_a_stop_at_any_moment_of_the_start(broker: BrokerProcess, tmp_path: Path) -> None:
    chance, log = Random(STOPS), tmp_path / "spark.log"
    for number in range(STOPS):
        began = size_of(log)
        with spark(broker, tmp_path, job="all") as process:
            until(lambda: handles_sigterm(process))
            pause(chance.uniform(0, START_S))
            assert_ends_in_order(number, process, log, began)


def test_a_stop_at_any_moment_of_a_backfill(broker: BrokerProcess, tmp_path: Path, mongo_url: str) -> None:
    chance, log = Random(STOPS), tmp_path / "backfill.log"
    with stored_tweets(mongo_url) as database:
        where = ["--broker", broker.address, "--mongo-url", mongo_url, "--database", database]
        flags = ["--event-time", "ingested", "--rows", "100", "--window", "50ms", "--ui-port", "0"]
        for number in range(STOPS):
            began = size_of(log)
            # Each run publishes to separate topics, so that each has the same work.
            with backfill(log, *where, *flags, "--suffix", f"_backfill{number}") as process:
                until(lambda: handles_sigterm(process))
                pause(chance.uniform(0, START_S))
                assert_ends_in_order(number, process, log, began)


@contextmanager
def backfill(log: Path, *flags: str) -> Iterator[Running]:
    program = Process(log, "spark", "backfill", "--master", "local[2]", *flags)
    program.launch()
    try:
        yield program.process
    finally:
        program.kill()


@contextmanager
def stored_tweets(mongo_url: str) -> Iterator[str]:
    name = f"stops_{uuid4().hex[:8]}"
    with MongoClient[dict[str, Any]](mongo_url) as client:
        client[name].tweets.insert_many(tweets(TWEETS))
        client[name].create_collection("users")
        yield name
        client.drop_database(name)


def handles_sigterm(process: Running) -> bool:
    """Return whether the program has set its own handler of SIGTERM, which it does once its loop runs."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
