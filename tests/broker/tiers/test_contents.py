"""The bucket for people and other programs: DuckDB and Spark count as the topic does, orphans go, and damage is found."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from obstore.store import MemoryStore
from pyspark.sql import SparkSession

from broker.tiers import leftovers
from broker.tiers.chain import Chain, find_chain, read_newest
from broker.tiers.contents import find_orphans
from broker.tiers.leftovers import KEPT_MANIFESTS, LEAVE_S, Leftovers, named_objects
from broker.tiers.location import open_store
from broker.tiers.manifest import FORMAT, Manifest, NamedSegment, NamedState, NamedTopic
from broker.tiers.object_names import index_object, lines_object, manifest_object, segment_stem, state_object
from broker.tiers.store import Store, StoredObject
from spark.apps.session import build_session
from tests.broker.tiers.test_program import identity, publish, restore, tiered, until_uploaded
from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient
from tweetwire.runtime.launching import module_argv

DAY_MS = 86_400_000


def run(*words: object, status: int = 0) -> str:
    argv = module_argv("tweetwire", *words)
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr + done.stdout
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = build_session("local[1]", app="tweetwire-tests", scratch=tmp_path_factory.mktemp("spark-scratch"))
    yield session
    session.stop()


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """A bucket with 1,000 events of the topic `t` in several segments, and some that retention has removed."""
    url = f"file://{tmp_path}/bucket"
    with tiered(tmp_path / "first", url) as broker:
        publish(broker, 0, 600)
        until_uploaded(url, broker)
        with SyncClient(broker.address) as client:
            client.command("purge t before=200")
        publish(broker, 600, 400)
        until_uploaded(url, broker)
        assert broker.terminate() == 0
    return tmp_path / "bucket"


def test_duckdb_and_spark_count_the_events_of_the_newest_manifest(bucket: Path, spark_session: SparkSession) -> None:
    url = f"file://{bucket}"
    paths = run("tiers", "--tier", url, "--list", "t", "--format", "spark").split()
    sql_list = run("tiers", "--tier", url, "--list", "t", "--format", "duckdb").strip()
    sql = f'select count(*), min("offset"), max("offset") from read_json({sql_list})'
    with duckdb.connect() as database:
        ((count, least, most),) = database.execute(sql).fetchall()
    assert len(paths) > 3
    # More objects are in the folder: those of removed segments are deleted an hour later.
    assert len(list(bucket.glob("*/topics/t/*.jsonl.gz"))) > len(paths)
    assert (most, count) == (999, 1000 - least)
    assert 0 < least <= 200
    assert spark_session.read.json(paths).count() == count
    assert json.loads(run("tiers", "--tier", url, "--list", "t", "--json")) == paths
    assert "there is no topic u at" in run("tiers", "--tier", url, "--list", "u", status=2)


def test_the_overview_the_check_and_the_folders_check_agree(bucket: Path) -> None:
    url, folder = f"file://{bucket}", bucket.parent / "first"
    rows = {row["topic"]: row for row in json.loads(run("tiers", "--tier", url, "--json"))}
    assert rows["t"]["next"] == 1000
    assert rows["t"]["segments"] > 3
    assert find_chain(open_store(url)) in run("tiers", "--tier", url)
    assert "0 of " in run("tiers", "--tier", url, "--check")
    assert "no faults found" in run("fsck", folder, "--tiers", url)
    lines = sorted(bucket.glob("*/topics/t/*.jsonl.gz"))
    lines[-1].unlink()
    damaged = bytearray(lines[-2].read_bytes())
    damaged[-20] ^= 1
    lines[-2].write_bytes(damaged)
    index = sorted(bucket.glob("*/topics/t/*.index"))[-3]
    index.write_bytes(index.read_bytes()[:-1])
    found = {
        Path(one["name"]).name: one["fault"]
        for one in json.loads(run("tiers", "--tier", url, "--check", "--json", status=1))
        if one["fault"]
    }
    assert found == {lines[-1].name: "missing", lines[-2].name: "damaged", index.name: "damaged"}
    of_folder = json.loads(run("fsck", folder, "--tiers", url, "--json", status=1))
    assert {Path(one["file"]).name: one["lost"][0] for one in of_folder if one["lost"]} == found


def test_collect_deletes_only_old_objects_that_no_manifest_will_name(bucket: Path) -> None:
    url = f"file://{bucket}"
    store = open_store(url)
    chain = find_chain(store)
    newest = read_newest(store, chain)
    assert newest is not None
    assert "deleted 0 objects" in run("tiers", "--tier", url, "--collect")
    late = index_object(chain, "t", segment_stem(1000, 1001, 1))
    for name in (late, lines_object(chain, "unknown", segment_stem(0, 1, 1)), f"{chain}/probe/x"):
        store.put(name, b"x")
    before = {path for path in bucket.rglob("*") if path.is_file()}
    old_s = time.time() - 2 * 86400
    for path in before:
        os.utime(path, (old_s, old_s))
    assert "deleted " in run("tiers", "--tier", url, "--collect")
    after = {path for path in bucket.rglob("*") if path.is_file()}
    gone = {str(path.relative_to(bucket)) for path in before - after}
    assert gone
    assert not gone & named_objects(chain, newest)
    assert f"{chain}/probe/x" in gone
    assert not any("/manifest/" in name or "unknown" in name or name == late for name in gone)
    assert "1 event" not in restore(url, bucket.parent / "second")
    with BrokerProcess(bucket.parent / "second") as broker, SyncClient(broker.address) as client:
        assert client.read("t", 999, limit=1).next == 1000


SEGMENTS = [NamedSegment(n, n + 10, 1, 1, 1, segment_stem(n, n + 10, n), 1, 1, 1, 1, 1) for n in range(0, 50, 10)]


def manifest(number: int, segments: list[NamedSegment], state: int = 1) -> Manifest:
    named = NamedState(state_object("c", state, 0), 1, 1, 1)
    return Manifest(FORMAT, number, "w", 1, "x", 0, named, {"t": NamedTopic(50, "", segments)})


def test_an_object_is_deleted_an_hour_after_the_first_manifest_without_it() -> None:
    now = [0.0]
    left = Leftovers("c", manifest(1, SEGMENTS), lambda: now[0])
    left.note_manifest(manifest(2, SEGMENTS[1:], state=2))
    assert left.take_due() == []
    now[0] = LEAVE_S - 1
    left.note_manifest(manifest(3, SEGMENTS[2:], state=2))
    assert left.take_due() == []
    now[0] = LEAVE_S
    first = SEGMENTS[0].name
    gone = [state_object("c", 1, 0), index_object("c", "t", first), lines_object("c", "t", first)]
    assert left.take_due() == sorted(gone)
    # The second segment is named again meanwhile.
    left.note_manifest(manifest(4, SEGMENTS[1:], state=2))
    now[0] = 3 * LEAVE_S
    assert left.take_due() == []


class AgedStore(Store):
    """A store whose objects are as old as `age_ms` says."""

    age_ms = 0

    def list_objects(self, folder: str, *, after: str | None = None) -> Any:
        for found in super().list_objects(folder, after=after):
            yield StoredObject(found.name, found.size, -self.age_ms)


@pytest.mark.parametrize("age_ms", [0, DAY_MS - 1, DAY_MS, 7 * DAY_MS])
def test_the_age_decides_which_orphans_may_still_be_named(age_ms: int) -> None:
    store = AgedStore(MemoryStore(), "memory")
    newest = manifest(9, SEGMENTS[2:])
    names = [lines_object("c", topic, one.name) for topic in ("t", "other") for one in SEGMENTS]
    late = lines_object("c", "t", segment_stem(50, 60, 1))
    for name in (*names, late, state_object("c", 1, 0), state_object("c", 7, 7)):
        store.put(name, b"x")
    store.age_ms = age_ms
    found = {one.name for one in find_orphans(store, "c", newest, 0)}
    expected: set[str] = set()
    if age_ms >= DAY_MS:
        expected |= {*names[:2], state_object("c", 7, 7)}
    if age_ms >= 7 * DAY_MS:
        expected |= set(names[5:])
    assert found == expected


def test_old_manifests_are_emptied_and_their_numbers_stay_taken() -> None:
    store = Store(MemoryStore(), "memory")
    chain = Chain(store, "c", "w", lambda _: None)
    chain.begin(None)
    for _ in range(KEPT_MANIFESTS + 5):
        chain.append(lambda number: manifest(number, SEGMENTS))
        chain.empty_old()
    for number in range(1, KEPT_MANIFESTS + 6):
        data = store.get(manifest_object("c", number))
        assert data is not None
        assert (b'"topics":{}' in data) == (number <= 5)
        assert not store.create(manifest_object("c", number), b"")
    assert read_newest(store, "c") == manifest(KEPT_MANIFESTS + 5, SEGMENTS)


def test_a_running_broker_deletes_what_it_has_left_behind(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    assert leftovers.LEAVE_S == 3600
    argv = (
        "import runpy; from broker.tiers import leftovers; leftovers.LEAVE_S = 1;"
        " runpy.run_module('broker', run_name='__main__', alter_sys=True)"
    )

    class HastyBroker(BrokerProcess):
        def command(self) -> list[str]:
            words = super().command()
            return [words[0], "-c", argv, *words[3:]]

    flags = ("--segment-bytes", "4KiB", "--reserve-bytes", "64KiB", "--tier-after", "200ms", "--tier", url)
    with HastyBroker(tmp_path / "first", *flags) as broker:
        publish(broker, 0, 600)
        until_uploaded(url, broker)
        before = set((tmp_path / "bucket").glob("*/topics/t/*"))
        with SyncClient(broker.address) as client:
            client.command("purge t before=500")
            deadline = time.monotonic() + 60
            while len(before & set((tmp_path / "bucket").glob("*/topics/t/*"))) > len(before) / 2:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            client.publish("t", Event(id="last", msg=Random(1).random()))
        until_uploaded(url, broker)
        chain = identity(broker)
    store = open_store(url)
    newest = read_newest(store, chain)
    assert newest is not None
    for name in named_objects(chain, newest):
        assert store.size_of(name)


def test_a_copy_with_a_new_identity_begins_its_own_chain(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with tiered(tmp_path / "first", url) as broker:
        publish(broker, 0, 100)
        first = identity(broker)
        assert broker.terminate() == 0
    run("fsck", tmp_path / "first", "--new-identity")
    with tiered(tmp_path / "first", url) as broker:
        until_uploaded(url, broker)
        assert identity(broker) != first
    assert len(list((tmp_path / "bucket").iterdir())) == 2
