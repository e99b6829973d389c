"""A MongoDB with logins becomes a replica set with one user, by the program that Compose runs."""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from demo.mongod import find_mongod
from demo.ports import free_port

pytestmark = pytest.mark.stack


@pytest.fixture
def member(tmp_path: Path) -> Iterator[str]:
    """A mongod that requires logins and is not a replica set yet."""
    key, port = tmp_path / "key", free_port()
    key.write_bytes(base64.b64encode(os.urandom(60)))
    key.chmod(0o600)
    (tmp_path / "db").mkdir()
    flags = ("--keyFile", str(key), "--replSet", "rs0", "--bind_ip", "127.0.0.1", "--port", str(port), "--nounixsocket")
    log = ("--quiet", "--logpath", str(tmp_path / "log"))
    with subprocess.Popen([find_mongod(), "--dbpath", str(tmp_path / "db"), *flags, *log]) as process:
        yield f"127.0.0.1:{port}"
        process.kill()


def make(member: str, password: str) -> "subprocess.CompletedProcess[str]":
    """Run the program against a member."""
    words = ("--mongo-url", f"mongodb://{member}", "--member", member, "--user", "tweetwire")
    environment = {**os.environ, "TWEETWIRE_DEMO_REPLICA_SET_PASSWORD": password}
    command = [sys.executable, "-m", "demo.replica_set", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=100)


def names_as(member: str, login: str) -> list[str]:
    """Return the databases that a login sees; raises PyMongoError."""
    with MongoClient[dict[str, Any]](f"mongodb://{login}{member}/?directConnection=true") as client:
        return client.list_database_names()


def test_the_replica_set_has_one_user_and_no_other_may_read(member: str) -> None:
    first = make(member, "right")
    assert first.returncode == 0, first.stderr
    assert "admin" in names_as(member, "tweetwire:right@")
    for login in ("", "tweetwire:wrong@"):
        with pytest.raises(OperationFailure):
            names_as(member, login)


def test_a_second_run_changes_nothing_and_another_password_is_refused_with_one_sentence(member: str) -> None:
    assert make(member, "right").returncode == 0
    assert make(member, "right").returncode == 0
    other = make(member, "other")
    assert other.returncode == 2
    assert "refuses the login of tweetwire" in other.stderr
    assert "admin" in names_as(member, "tweetwire:right@")
