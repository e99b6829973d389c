"""After SIGHUP, a broker reads its users and its certificate again. Only the connections of removed users end."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import make_certificates
from tests.support.processes import BrokerProcess, Process
from tests.support.waiting import until
from tweetwire import Event, Refusal, SyncClient

pytestmark = pytest.mark.stack

REFUSED = "cannot reload, the files read before stay in use"


@pytest.fixture(scope="module")
def token_hash() -> str:
    """The hash of the token ``word``."""
    words = [sys.executable, "-m", "broker.users", "any"]
    entry = subprocess.run(words, input="word\n", capture_output=True, text=True, check=True).stdout
    return entry.split('token = "')[1].split('"')[0]


class Guarded:
    """A broker with users that can be replaced."""

    def __init__(self, process: BrokerProcess, users: Path, token_hash: str) -> None:
        self.process = process
        self._users = users
        self._hash = token_hash

    def client(self, name: str) -> SyncClient:
        return SyncClient(self.process.address, name=name, token="word")

    def reload(self, text: str | None = None, **patterns: str) -> None:
        """Write the users with their topics, make the broker read them, and wait until it has."""
        entries = (
            f'[[users]]\nname = "{name}"\ntoken = "{self._hash}"\npublish = ["{topic}"]\nsubscribe = ["{topic}"]\n'
            for name, topic in patterns.items()
        )
        self._users.write_text("".join(entries) if text is None else text)
        before = len(self.process.logged("reloaded")) + len(self.process.logged(REFUSED))
        hang_up(self.process)
        until(lambda: len(self.process.logged("reloaded")) + len(self.process.logged(REFUSED)) > before)


def hang_up(process: Process) -> None:
    """Send SIGHUP."""
    os.kill(process.pid, signal.SIGHUP)


@pytest.fixture
def guarded(tmp_path: Path, token_hash: str) -> Iterator[Guarded]:
    users = tmp_path / "users.toml"
    users.write_text(
        "".join(
            f'[[users]]\nname = "{name}"\ntoken = "{token_hash}"\npublish = ["*"]\nsubscribe = ["*"]\n'
            for name in ("stays", "goes")
        )
    )
    with BrokerProcess(tmp_path / "broker", "--users", users) as process:
        yield Guarded(process, users, token_hash)


def test_only_the_connections_of_removed_users_end(guarded: Guarded) -> None:
    with guarded.client("stays") as stays, socket.create_connection(("127.0.0.1", guarded.process.port), 20) as goes:
        goes.sendall(b"hello goes token=word\n")
        with goes.makefile("rb") as lines:
            assert [lines.readline()[:4] for _ in range(2)] == [b"+OK ", b"+OK "]
            guarded.reload(stays="*", comes="*")
            assert lines.read() == b"!closing goes is no longer a user of this broker\n"
        assert stays.publish("t", Event(id="1", msg=1)).last == 0
        with guarded.client("comes") as comes:
            assert comes.publish("t", Event(id="2", msg=2)).last == 1
        with pytest.raises(Refusal, match="unauthenticated"):
            guarded.client("goes")


def test_a_connection_may_do_what_its_user_may_do_now(guarded: Guarded) -> None:
    with socket.create_connection(("127.0.0.1", guarded.process.port), 20) as client, client.makefile("rb") as lines:
        client.sendall(b"hello stays token=word\nsub t as=s create\n")
        assert [lines.readline()[:4] for _ in range(3)] == [b"+OK "] * 3
        guarded.reload(stays="u")
        assert lines.readline() == b"!ended t as=s stays may no longer use it\n"
        client.sendall(b'pub t {"id":"1","msg":1}\npub u {"id":"2","msg":2}\n')
        assert lines.readline().startswith(b"-ERR forbidden ")
        assert lines.readline() == b"+OK pub u 0 synced\n"


def test_a_file_that_cannot_be_used_changes_nothing(guarded: Guarded) -> None:
    with guarded.client("stays") as client:
        guarded.reload("nonsense")
        guarded.reload(
            '[[users]]\nname = "a"\ntoken = "$argon2id$v=19$m=1,t=1,p=1$wBSwLWkhJnOnsD2R27bUpg$W+m8/0Wof5Ck"\n'
        )
        assert len(guarded.process.logged(REFUSED)) == 2
        assert client.publish("t", Event(id="1", msg=1)).last == 0
    with guarded.client("goes") as again:
        assert again.publish("t", Event(id="2", msg=2)).last == 1


def certificates_in(folder: Path) -> Path:
    folder.mkdir()
    return make_certificates(folder)


def test_new_connections_see_the_new_certificate_and_old_ones_continue(tmp_path: Path) -> None:
    first, second = (certificates_in(tmp_path / name) for name in ("first", "second"))
    used = tmp_path / "used"
    shutil.copytree(first, used)
    with BrokerProcess(tmp_path / "broker", f"--tls-cert={used}/server.pem", f"--tls-key={used}/server.key") as process:
        with SyncClient(process.address, tls=ssl.create_default_context(cafile=first / "ca.pem")) as client:
            shutil.copytree(second, used, dirs_exist_ok=True)
            hang_up(process)
            until(lambda: process.logged("reloaded"))
            assert client.publish("t", Event(id="1", msg=1)).last == 0
        with SyncClient(process.address, tls=ssl.create_default_context(cafile=second / "ca.pem")) as client:
            assert client.publish("t", Event(id="2", msg=2)).last == 1


def test_a_service_without_files_to_read_again_continues(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as process, SyncClient(process.address) as client:
        hang_up(process)
        until(lambda: process.logged("reloaded"))
        assert client.publish("t", Event(id="1", msg=1)).last == 0
