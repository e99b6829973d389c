"""Connections to a real broker that send nothing, or nothing useful."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import files_of
from tests.support.processes import BrokerProcess
from tests.support.users import entry
from tests.support.waiting import until
from tweetwire import SyncClient


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.toml"
    path.write_text(entry("boss", "right", "admin = true"))
    return path


@pytest.fixture
def guarded(tmp_path: Path, users: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "b", "--users", str(users)) as process:
        yield process


def lines_of(connection: socket.socket) -> list[bytes]:
    """Read to the end; the first line is the greeting."""
    with connection.makefile("rb") as lines:
        return list(lines)[1:]


def test_a_connection_that_does_not_log_in_is_closed_with_a_notice(tmp_path: Path, users: Path) -> None:
    with BrokerProcess(tmp_path / "b", "--users", str(users), "--greeting-timeout", "500ms") as broker:
        with socket.create_connection(("127.0.0.1", broker.port), 30) as silent:
            assert lines_of(silent) == [b"!closing no login came within 0.5 s\n"]
        with socket.create_connection(("127.0.0.1", broker.port), 30) as stranger:
            stranger.sendall(b"ping\nhelp\n")
            assert lines_of(stranger)[-1] == b"!closing no login came within 0.5 s\n"
        with SyncClient(broker.address, name="boss", token="right") as client:
            with socket.create_connection(("127.0.0.1", broker.port), 30) as silent:
                assert len(lines_of(silent)) == 1
            client.ping()


def test_without_users_a_first_command_is_enough(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "b", "--greeting-timeout", "500ms") as broker,
        socket.create_connection(("127.0.0.1", broker.port), 30) as person,
        person.makefile("rb") as lines,
    ):
        person.sendall(b"ping\n")
        assert [lines.readline()[:3], lines.readline()] == [b"+OK", b"+PONG\n"]
        with socket.create_connection(("127.0.0.1", broker.port), 30) as silent:
            silent.sendall(b"\n\r\n")
            assert lines_of(silent) == [b"!closing no command came within 0.5 s\n"]
        person.sendall(b"ping\n")
        assert lines.readline() == b"+PONG\n"


@pytest.mark.parametrize("is_guarded", [False, True])
def test_silent_connections_keep_no_client_out(tmp_path: Path, users: Path, is_guarded: bool) -> None:
    flags = ["--users", str(users)] if is_guarded else []
    login: dict[str, Any] = {"name": "boss", "token": "right"} if is_guarded else {}
    with BrokerProcess(tmp_path / "b", "--connections-max", "50", *flags) as broker, ExitStack() as stack:
        early = stack.enter_context(SyncClient(broker.address, **login))
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30))
        late = stack.enter_context(SyncClient(broker.address, **login))
        for client in (early, late):
            client.ping()


def test_tls_handshakes_count_and_silent_ones_keep_no_client_out(tmp_path: Path, certificates: Path) -> None:
    flags = files_of(certificates, "server")[:2]
    with BrokerProcess(tmp_path / "b", "--connections-max", "20", *flags) as broker, ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30)) for _ in range(40)]
        # The broker closed the oldest connections without a handshake, to make room for the newest.
        assert silent[0].recv(1) == b""
        with stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30)) as person:
            person.sendall(b"topics\r\n")
            assert person.recv(100) == b"-ERR forbidden this port speaks TLS\n"


def test_one_address_has_as_many_connections_as_the_flag_allows(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "b", "--connections-per-address", "2") as broker, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(SyncClient(broker.address))
        third = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30))
        assert third.recv(100) == b"-ERR too_many 2 connections from 127.0.0.1 are open\n"
        assert third.recv(100) == b""


def test_bad_lines_before_a_login_are_answered_and_not_kept(guarded: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), 30) as stranger, stranger.makefile("rb") as lines:
        stranger.sendall(b'pub t {"id":\npub t {}\nping\n')
        answers = [lines.readline() for _ in range(4)]
        assert [answer.split()[1] for answer in answers[1:3]] == [b"bad_json", b"bad_event"]
        assert answers[3] == b"+PONG\n"
        stranger.sendall(b'hello boss token=right\npub t {"id":\nping\n')
        assert [lines.readline()[:9] for _ in range(3)] == [b"+OK hello", b"-ERR bad_", b"+PONG\n"]
    with SyncClient(guarded.address, name="boss", token="right") as client:
        # The broker stores the refused line after it has replied, once its topic exists.
        until(lambda: client.stats()["topics"]["rejected_lines"]["next"] > 0)
        assert client.stats()["topics"]["rejected_lines"]["next"] == 1


def test_a_long_line_is_taken_only_after_a_login(guarded: BrokerProcess) -> None:
    event = b'pub t {"id":"1","msg":"%s"}\n' % (b"x" * 100_000)
    with socket.create_connection(("127.0.0.1", guarded.port), 30) as stranger:
        stranger.sendall(event[:5000])
        assert lines_of(stranger) == [b"-ERR too_long max=4096 before a login\n"]
    with socket.create_connection(("127.0.0.1", guarded.port), 30) as client, client.makefile("rb") as lines:
        # Send all lines in one write, like a client that reconnects.
        client.sendall(b"hello boss token=right\n" + event)
        assert [lines.readline()[:9] for _ in range(3)] == [b"+OK tweet", b"+OK hello", b"+OK pub t"]
