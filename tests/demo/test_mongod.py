"""A replica set in an empty folder: it is started, killed, moved and stopped. One sentence says why it cannot start."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from demo.mongod import Member, ReplicaSet, binary, find_mongod, mongodb
from demo.ports import free_port
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.stack


@pytest.fixture
def one(tmp_path: Path) -> Iterator[ReplicaSet]:
    with ReplicaSet(tmp_path / "mongo") as running:
        yield running


def count(url: str) -> int:
    with MongoClient[dict[str, Any]](url) as client:
        return client.db.things.count_documents({})


def insert(url: str) -> None:
    with MongoClient[dict[str, Any]](url) as client:
        client.db.things.insert_one({})


def test_written_documents_outlive_kill_and_stop_on_the_same_port(one: ReplicaSet) -> None:
    url = one.url
    insert(url)
    one.kill()
    one.start()
    assert (one.url, count(url)) == (url, 1)
    one.stop()
    one.start()
    assert (one.url, count(url)) == (url, 1)


def test_data_that_moves_to_another_port_is_the_same_set(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path / "mongo") as running:
        insert(running.url)
        first = running.url
    (tmp_path / "mongo" / "member-0" / "port").unlink()
    with ReplicaSet(tmp_path / "mongo") as running:
        assert running.url != first
        assert count(running.url) == 1


def test_a_given_port_is_used_and_a_taken_one_is_reported_in_one_sentence(tmp_path: Path, one: ReplicaSet) -> None:
    port = one.members[0].port
    with pytest.raises(StartError, match=f"port {port} on 127.0.0.1 is in use"):
        ReplicaSet(tmp_path / "other", ports=[port]).members[0].start()


def test_data_in_use_is_reported_in_one_sentence(one: ReplicaSet) -> None:
    again = Member(one.members[0].data_dir, port=free_port())
    with pytest.raises(StartError, match="another mongod uses"):
        again.start()


def test_another_member_is_elected(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path / "mongo", members=3) as three:
        first = three.wait_for_primary()
        three.step_down()
        assert three.wait_for_primary() is not first


def test_without_any_mongod_the_message_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binary, "_WHEEL", "no-such-distribution")
    with pytest.raises(StartError, match="no mongod was found; set MONGO_URL to a replica set, put a mongod"):
        find_mongod()


def test_a_mongod_that_cannot_run_is_passed_over_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "mongod"
    broken.write_text("#!/bin/sh\necho 'libcrypto.so.3: cannot open shared object file' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setattr(binary, "_WHEEL", "no-such-distribution")
    with pytest.raises(
        StartError, match=r"cannot run \(libcrypto.so.3: cannot open shared object file\); set MONGO_URL"
    ):
        find_mongod()
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    assert find_mongod() != broken


def test_mongo_url_names_the_server_to_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one: ReplicaSet) -> None:
    monkeypatch.setenv("MONGO_URL", one.url)
    with mongodb(tmp_path / "unused") as url:
        assert url == one.url
    assert not (tmp_path / "unused").exists()


def test_a_mongo_url_that_does_not_answer_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MONGO_URL", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100")
    with pytest.raises(StartError, match="no MongoDB answers at MONGO_URL"), mongodb(tmp_path):
        pass
