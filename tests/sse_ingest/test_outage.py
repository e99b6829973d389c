"""MongoDB is killed under load: the readers wait, no event is lost, and every tweet is stored once."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from demo.mongod import ReplicaSet
from sse_ingest.simulator.tweets import Timeline
from tests.sse_ingest.programs import Person, Program
from tests.sse_ingest.stored import assert_counts_are_exact
from tests.sse_ingest.test_program import balance, both, ingester, simulator
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(150)]

AWAY_S = float(os.environ.get("TWEETWIRE_TEST_OUTAGE", "3"))
COUNT = 2000


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def in_flight(program: Program) -> int:
    with Person(program.port) as person:
        lines = person.ask("status").splitlines()
    return sum(int(line.rpartition(", ")[2].split()[0]) for line in lines if "in flight" in line)


def test_mongodb_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    flags = (
        "--autostart",
        "--mongo-timeout",
        "2s",
        "--inbox-size",
        300,
        "--flush-every",
        "500ms",
        "--worker-events",
        64,
    )
    with ReplicaSet(tmp_path / "mongod") as mongod, MongoClient[dict[str, Any]](mongod.url, tz_aware=True) as client:
        database = client["ingest"]
        with (
            simulator(tmp_path, "--count", COUNT, "--rate", 500, "--seed", 9) as server,
            ingester(tmp_path, mongod.url, database, *both(server), *flags) as program,
        ):
            until(lambda: database.tweets.estimated_document_count() > 500)
            mongod.members[0].kill()
            until(lambda: program.logged("MongoDB did not accept a batch, retrying"), 30, program.log)
            # The inboxes, the workers and the writer's queue fill, and then the readers wait.
            until(lambda: in_flight(program) > 600)
            began, memory = time.monotonic(), rss_bytes(program.pid)
            with Person(program.port) as person:
                assert "MongoDB does not accept batches" in person.ask("status")
            while time.monotonic() - began < AWAY_S:
                assert in_flight(program) < 2 * (300 + 2 * 64) + 16 * 64 * 2 + 500
                time.sleep(0.5)
            assert rss_bytes(program.pid) - memory < 64 << 20
            mongod.members[0].start()
            mongod.wait_for_primary()
            wanted = {
                one["id_str"]
                for route in (1, 2)
                for number in range(COUNT)
                for status in [Timeline(9, route).status(number)]
                for one in (status, status.get("retweeted_status"), status.get("quoted_status"))
                if one
            }
            until(lambda: database.tweets.estimated_document_count() >= len(wanted), 60, program.log)
            assert program.terminate() == 0
        balance(program)
        assert set(database.tweets.distinct("_id")) == wanted
        assert_counts_are_exact(database)
        assert len(program.logged("MongoDB did not accept a batch, retrying")) == 1
        assert len(program.logged("MongoDB accepts batches again")) == 1


def test_stopped_while_mongodb_is_away_it_ends_in_time_and_reports_the_unwritten_events(tmp_path: Path) -> None:
    flags = ("--autostart", "--mongo-timeout", "1s", "--stop-within", "1500ms", "--flush-every", "200ms")
    with ReplicaSet(tmp_path / "mongod") as mongod, MongoClient[dict[str, Any]](mongod.url, tz_aware=True) as client:
        database = client["ingest"]
        with (
            simulator(tmp_path, "--rate", 200) as server,
            ingester(tmp_path, mongod.url, database, *both(server), *flags) as program,
        ):
            until(lambda: database.tweets.estimated_document_count() > 50)
            mongod.members[0].kill()
            until(lambda: program.logged("MongoDB did not accept a batch, retrying"), 30, program.log)
            assert program.terminate(20) == 1
            lost = program.logged("events were read but not written")
            assert all(entry["events"] > 0 for entry in lost)
            assert len(lost) == 2
            mongod.members[0].start()
            mongod.wait_for_primary()
            assert_counts_are_exact(database)


def test_the_ingester_waits_for_a_mongod_that_hangs(tmp_path: Path) -> None:
    flags = ("--autostart", "--mongo-timeout", "1s", "--flush-every", "200ms")
    with ReplicaSet(tmp_path / "mongod") as mongod, MongoClient[dict[str, Any]](mongod.url, tz_aware=True) as client:
        database = client["ingest"]
        with (
            simulator(tmp_path, "--count", 400, "--rate", 200, "--seed", 4) as server,
            ingester(tmp_path, mongod.url, database, *both(server), *flags) as program,
        ):
            until(lambda: database.tweets.estimated_document_count() > 50)
            pid = mongod.members[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            time.sleep(2)
            os.kill(pid, signal.SIGCONT)
            until(lambda: len(program.logged("all sources ended")) == 1, 60, program.log)
            assert program.terminate() == 0
        balance(program)
        assert_counts_are_exact(database)
