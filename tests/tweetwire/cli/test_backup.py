"""``backup`` and ``restore`` on real brokers: the restored broker gives the same answers as the first one."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest

from broker.restore_backup import restore_backup
from tests.support.commands import PATIENCE_S, Tweetwire
from tests.support.consumer import Consumer
from tests.support.filled_broker import ask_everything, fill_broker
from tests.support.processes import BrokerProcess
from tests.support.users import entry
from tests.support.waiting import until
from tweetwire import Event, SyncClient
from tweetwire.cli.backup_copy import BrokerCopy
from tweetwire.cli.backup_form import read_manifest, write_manifest
from tweetwire.protocol.errors import Refusal, StartError

TOPICS: Final = ("orders", "tweets", "busy", "empty")


@contextmanager
def publishing(broker: BrokerProcess) -> Iterator[list[int]]:
    """Publish numbered events to ``busy`` until the end of the block. Yields the confirmed sequences."""
    confirmed: list[int] = []
    end = threading.Event()

    def publish() -> None:
        with SyncClient(broker.address, name="publisher") as client:
            while not end.is_set():
                first = len(confirmed)
                some = range(first, first + 100)
                client.publish_many("busy", [Event(id=str(n), msg=n, producer="p0", sequence=n) for n in some])
                confirmed.extend(some)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        until(lambda: len(confirmed) >= 500)
        yield confirmed
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize("seed", range(3))
def test_a_restored_broker_answers_as_the_first_one_did(tmp_path: Path, seed: int) -> None:
    quiet = ("orders", "tweets", "empty")
    with BrokerProcess(tmp_path / "first", "--segment-bytes", "4KiB") as broker:
        with SyncClient(broker.address, name="test") as client:
            fill_broker(broker, client, Random(seed))
            until(lambda: client.stats()["topics"]["orders"]["subscriptions"]["s"]["in_flight"] == 0)
            before = ask_everything(client, quiet)
            with publishing(broker) as confirmed:
                at_least = len(confirmed)
                done = Tweetwire(broker)("backup", tmp_path / "copy")
                until(lambda: len(confirmed) > at_least + 500)
            lines, _ = client.read_lines("busy", 0, limit=100_000, bytes_max=16 << 20)
        assert done.errors.startswith("copied ")
        assert f" events of 5 topics to {tmp_path / 'copy'} in " in done.errors
    assert restore(tmp_path).startswith("restored ")
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address, name="test") as client:
        assert broker.logged("mended a log") == broker.logged("part of the state is damaged") == []
        assert ask_everything(client, quiet) == before
        copied, after = client.read_lines("busy", 0, limit=100_000, bytes_max=16 << 20)
        assert at_least <= after < len(lines)
        assert copied == lines[:after]
        position = client.last("busy", "p0")
        assert position is not None
        assert position.sequence == after - 1
        # The publisher sends all its events again. The broker recognises those that are in the backup.
        client.publish_many("busy", [Event(id=str(n), msg=n, producer="p0", sequence=n) for n in range(len(lines))])
        assert [event.decode() for event in client.read("busy", 0, limit=100_000).events] == list(range(len(lines)))
        for topic in ("orders", "tweets"):
            repeated = client.publish(topic, Event(id="again", msg={}, producer="p1", sequence=397))
            assert repeated.is_duplicate
            consume_all(broker, client, topic)
        assert client.command("redrive orders as=s all") != "+OK redrive orders 0"
        with Consumer(broker, "hello holder", "pubrel orders held"):
            assert client.read("orders", "400").events[0].id == "held"


@contextmanager
def working(broker: BrokerProcess) -> Iterator[None]:
    """Publish to ``work`` until the end of the block. One event in ten dies; each of the others gets a result."""
    end = threading.Event()

    def publish() -> None:
        with SyncClient(broker.address, name="publisher") as client:
            for n in count():
                if end.is_set():
                    return
                client.publish("work", Event(id=f"w{n}", msg=n, priority=n % 3))

    def consume() -> None:
        with SyncClient(broker.address, name="worker") as client:
            subscription = client.subscribe("work", as_="s", from_="earliest", prefetch=20, tries=1, create=True)
            while not end.is_set():
                for event in subscription.take(within_s=0.1):
                    if event.decode() % 10 == 0:
                        subscription.nack(event, "every tenth")
                    else:
                        client.publish("results", Event(id=f"r-{event.id}", msg=event.offset))
                        subscription.ack([event])

    threads = [threading.Thread(target=consume), threading.Thread(target=publish)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_a_backup_of_a_busy_broker_loses_no_event(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "first") as broker, SyncClient(broker.address) as client, working(broker):
        until(lambda: stored(client, "results") > 200)
        Tweetwire(broker)("backup", tmp_path / "copy")
        after = stored(client, "results")
        until(lambda: stored(client, "results") > after + 50)
    restore(tmp_path)
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address) as client:
        # Events whose dead letter was not stored at the moment of the copy are in neither report until it is stored again.
        until(lambda: len(dead_events(client)) == client.stats("work")["topics"]["work"]["subscriptions"]["s"]["dead"])
        dead = dead_events(client)
        runs = json.loads(client.command("unsettled work as=s limit=100000").split(" ", 3)[3])["offsets"]
        unsettled = {offset for first, last in runs for offset in range(first, last + 1)}
        results = {event.decode() for event in client.read("results", 0, limit=100_000).events}
        letters = {event.offset: event.decode() for event in client.read("dead_letters", 0, limit=100_000).events}
        events = {event.offset: event for event in client.read("work", 0, limit=100_000).events}
        assert len(results) >= 180
        assert dead
        assert events.keys() == unsettled | {one["offset"] for one in dead} | results
        assert not unsettled & {one["offset"] for one in dead}
        for one in dead:
            assert letters[one["dead_letter"]]["event"]["id"] == events[one["offset"]].id
            assert [error["message"] for error in one["errors"]] == ["every tenth"]


def dead_events(client: SyncClient) -> list[dict[str, Any]]:
    """Return the dead events of the subscription ``s`` of ``work``."""
    dead: list[dict[str, Any]] = json.loads(client.command("dead topic=work as=s limit=100000").split(" ", 2)[2])
    return dead


def stored(client: SyncClient, topic: str) -> int:
    """Return the number of events of a topic."""
    return next((one.next for one in client.topics() if one.topic == topic), 0)


def restore(folder: Path, status: int = 0) -> str:
    """Restore the folder ``copy`` to ``second``, and return the error output."""
    words = ["restore", str(folder / "copy"), "--data-dir", str(folder / "second")]
    done = subprocess.run(
        [sys.executable, "-m", "tweetwire", *words], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def consume_all(broker: BrokerProcess, client: SyncClient, topic: str) -> None:
    """Consume each subscription to its end, and compare the events with those that were unsettled."""
    for name in ("s", "u"):
        runs = json.loads(client.command(f"unsettled {topic} as={name}").split(" ", 3)[3])["offsets"]
        expected = {offset for first, last in runs for offset in range(first, last + 1)}
        subscription = client.subscribe(topic, as_=name, prefetch=1000)
        found: set[int] = set()
        while found < expected:
            events = subscription.take(within_s=PATIENCE_S)
            assert events
            subscription.ack(events)
            found.update(event.offset for event in events)
        assert found == expected
        client.unsubscribe(subscription)
        assert client.stats(topic)["topics"][topic]["subscriptions"][name]["pending"] == 0


# Faults


@pytest.fixture
def copy(tmp_path: Path, shared_broker: BrokerProcess) -> Path:
    """A backup of three events and a subscription."""
    with SyncClient(shared_broker.address) as client:
        if all(topic.topic != "t" for topic in client.topics()):
            client.publish_many("t", [Event(id=str(n), msg=n) for n in range(3)])
            client.unsubscribe(client.subscribe("t", as_="s", from_="earliest", prefetch=1))
    Tweetwire(shared_broker)("backup", tmp_path / "copy")
    return tmp_path / "copy"


def test_a_backup_makes_its_folder_and_only_its_owner_may_read_it(copy: Path) -> None:
    paths = [copy, *copy.rglob("*")]
    assert {path.name for path in paths if path.is_file()} >= {"BACKUP", "state.lines", "t.lines"}
    assert {oct(path.stat().st_mode & 0o777) for path in paths} == {"0o700", "0o600"}


def test_a_folder_that_is_not_empty_is_refused(copy: Path, tweetwire: Tweetwire) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = tweetwire("backup", copy, status=2)
    assert done.errors == f"tweetwire backup: {copy} is not empty; choose a new folder\n"
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_restore_refuses_a_data_directory_that_is_used(copy: Path) -> None:
    with BrokerProcess(copy.parent / "second"):
        assert "is not empty; choose a new folder with --data-dir" in restore(copy.parent, 2)
    assert "is not empty; choose a new folder with --data-dir" in restore(copy.parent, 2)


def test_a_restore_takes_an_empty_folder(copy: Path) -> None:
    (copy.parent / "second").mkdir()
    (copy.parent / "second" / "lost+found").mkdir()
    restore(copy.parent)
    with BrokerProcess(copy.parent / "second") as broker, SyncClient(broker.address) as client:
        assert [event.decode() for event in client.read("t", 0).events] == [0, 1, 2]


def test_an_interrupted_backup_is_recognised(tmp_path: Path, shared_broker: BrokerProcess) -> None:
    with SyncClient(shared_broker.address) as client:
        client.publish_many("much", (Event(id=str(n), msg="x" * 500) for n in range(60_000)))
    with Tweetwire(shared_broker).started("backup", tmp_path / "copy") as process:
        until(lambda: any(path.stat().st_size for path in tmp_path.glob("copy/topics/much.lines")), pause_s=0.001)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    assert "is incomplete: it was interrupted before it had written BACKUP; make a new one" in restore(tmp_path, 2)
    assert not (tmp_path / "second").exists()
    shutil.rmtree(tmp_path / "copy")
    with Tweetwire(shared_broker).started("backup", tmp_path / "copy") as process:
        until(lambda: any(path.stat().st_size for path in tmp_path.glob("copy/topics/much.lines")), pause_s=0.001)
        process.terminate()
        assert process.wait(PATIENCE_S) == 2
        assert process.stderr is not None
        assert process.stderr.read().endswith("is incomplete, remove it\n")


def test_a_folder_that_is_not_a_backup_is_refused(tmp_path: Path) -> None:
    assert "is not a backup: it has no file BACKUP" in restore(tmp_path, 2)


def test_a_full_disk_ends_a_backup_with_one_sentence(
    tmp_path: Path, tweetwire: Tweetwire, shared_client: SyncClient
) -> None:
    shared_client.publish_many("large", (Event(id=str(n), msg="x" * 500) for n in range(500)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        done = tweetwire("backup", tmp_path / "copy", status=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "File too large; the backup in" in done.errors
    assert done.errors.count("\n") == 1
    assert "is incomplete" in restore(tmp_path, 2)


def test_a_full_disk_leaves_an_empty_folder_after_a_restore(copy: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))
    try:
        assert "File too large" in restore(copy.parent, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    restore(copy.parent)


def test_a_broker_refuses_the_folder_of_an_interrupted_restore(copy: Path) -> None:
    folder = copy.parent / "second"
    (folder / "restoring" / "topics").mkdir(parents=True)
    with pytest.raises(StartError, match="was interrupted"), BrokerProcess(folder):
        pass
    restore(copy.parent)
    with BrokerProcess(folder) as broker, SyncClient(broker.address) as client:
        assert client.stats("t")["topics"]["t"]["subscriptions"]["s"]["pending"] == 3


def test_a_restore_that_fails_at_its_end_leaves_an_empty_folder(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, fsync = copy.parent / "second", os.fsync

    def fail(file: int) -> None:
        if (folder / "topics").exists() and (folder / "restoring").exists():
            raise OSError(errno.EIO, "Input/output error")
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(StartError, match="Input/output error"):
            restore_backup(copy, read_manifest(copy), folder, lambda _: None)
    assert [path.name for path in folder.iterdir()] == ["LOCK"]
    restore(copy.parent)


@pytest.mark.parametrize("damage", ["a bit", "the end", "the file"])
def test_damage_is_named_and_the_rest_is_restored(copy: Path, damage: str) -> None:
    path = copy / "topics" / "t.lines"
    data = path.read_bytes()
    if damage == "a bit":
        path.write_bytes(data.replace(b'"offset":1,', b'"offset":9,'))
    elif damage == "the end":
        path.write_bytes(data[:-5])
    else:
        path.unlink()
    lost = {"a bit": [1], "the end": [2], "the file": [0, 1, 2]}[damage]
    assert f"{len(lost)} events of t are damaged or missing\n" in restore(copy.parent, 1)
    with BrokerProcess(copy.parent / "second") as broker, SyncClient(broker.address) as client:
        assert [event.offset for event in client.read("t", 0).events] == sorted({0, 1, 2} - {*lost})
        # No offset is used twice.
        assert client.publish("t", Event(id="new", msg=0)).first == 3


def test_a_damaged_state_is_named_and_a_damaged_manifest_refused(copy: Path) -> None:
    state = copy / "state.lines"
    first, *others = state.read_bytes().splitlines(keepends=True)
    state.write_bytes(b"0" + first[1:] + b"".join(others[:-1]))
    assert "2 records of the state are damaged or missing" in restore(copy.parent, 1)
    manifest = copy / "BACKUP"
    manifest.write_bytes(manifest.read_bytes().replace(b'"t"', b'"u"'))
    assert "BACKUP is damaged" in restore(copy.parent, 2)


def test_a_backup_of_a_newer_format_is_refused(copy: Path) -> None:
    manifest = read_manifest(copy)
    write_manifest(copy, msgspec.structs.replace(manifest, format=2))
    assert "has format 2, and this release reads 1; use a newer release" in restore(copy.parent, 2)


def test_topics_that_the_user_may_not_read_are_left_out_and_named(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(
        entry("admin", "secret", "admin = true", subscribe='["t", "dead_letters"]')
        + entry("reader", "secret", subscribe='["*"]')
        + entry("all", "secret", "admin = true", subscribe='["*", "dead_letters", "rejected_lines", "audit"]')
    )
    users.chmod(0o600)
    with BrokerProcess(tmp_path / "broker", "--users", users) as broker:
        with SyncClient(broker.address, name="all", token="secret") as client:
            for topic in ("t", "other"):
                client.publish(topic, Event(id="a", msg=1))
        tweetwire = Tweetwire(broker)
        login = ("--token", "secret", "--name")
        done = tweetwire("backup", tmp_path / "copy", *login, "admin", status=1)
        assert "left out, since this user may not read them: other\n" in done.errors
        assert [topic.topic for topic in read_manifest(tmp_path / "copy").topics] == ["dead_letters", "t"]
        done = tweetwire("backup", tmp_path / "refused", *login, "reader", status=2)
        assert "the broker refuses (forbidden)" in done.errors
        tweetwire("backup", tmp_path / "whole", *login, "all")


def test_a_topic_that_is_dropped_meanwhile_is_left_out(
    tmp_path: Path, shared_client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("stays", "goes", "again"):
        shared_client.publish_many(topic, [Event(id=str(n), msg=n) for n in range(5)])
    (tmp_path / "copy").mkdir()
    copy = BrokerCopy(shared_client, tmp_path / "copy")
    read_lines = shared_client.read_lines

    def read(topic: str, offset: int, **options: Any) -> tuple[list[bytes], int]:
        if topic == "goes":
            raise Refusal("unknown_topic", "there is no topic goes")
        if topic == "again" and offset == 4:
            return [], 1
        return read_lines(topic, offset, **options)

    monkeypatch.setattr(shared_client, "read_lines", read)
    manifest = copy.finish(lambda _: None)
    assert manifest.dropped == ["again", "goes"]
    assert "stays" in {topic.topic for topic in manifest.topics}
    assert sorted(path.stem for path in (tmp_path / "copy" / "topics").iterdir()) == sorted(
        topic.topic for topic in manifest.topics
    )
