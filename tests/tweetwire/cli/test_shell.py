"""The shell on a pseudo-terminal, and with a script as its input."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.support.processes import BrokerProcess
from tests.support.terminal import PATIENCE_S, ProgramTerminal
from tweetwire import Event, SyncClient


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[SyncClient]:
    with SyncClient(broker.address, name="test") as client:
        yield client


class Terminal(ProgramTerminal):
    """A shell on a separate pseudo-terminal."""

    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.history = home / "history"
        super().__init__("broker", "shell", "--broker", broker.address, "--history", str(self.history))

    def __enter__(self) -> Self:
        self.until("hello shell")
        return self

    def type(self, keys: str) -> None:
        self.press(keys.encode())


def test_the_shell_completes_words_shows_events_during_typing_and_keeps_a_history(
    client: SyncClient, broker: BrokerProcess, tmp_path: Path
) -> None:
    client.publish("tweets", Event(id="1", msg="first"))
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("su\ttw\tas=inventory fro\tearliest\r")
        terminal.until("sub tweets as=inventory from=earliest")
        terminal.until('"first"')
        assert "\x1b[2m" in terminal.written
        terminal.type("ack twe")
        terminal.until("ack twe")
        client.publish("rest", Event(id="other", msg="unseen"))
        terminal.type("\x15sub re\t\r")
        terminal.until("sub rest")
        terminal.until("prefetch=")
        terminal.type("half a li")
        terminal.until("half a li")
        client.publish("rest", Event(id="2", msg="amid"))
        terminal.until('"amid"')
        # The shell shows the half-typed line again below the event, so that typing continues.
        terminal.until("> half a li")
        terminal.type("\x15hello someone TOKEN=hunter2\r")
        terminal.until("hello someone")
        terminal.until("hello someone")
        terminal.type("ack tweets 1\r")
        terminal.until("+OK ack tweets ")
        terminal.type("\x04")
        terminal.until("bye")
        assert terminal.status() == 0
    remembered = terminal.history.read_text()
    assert "sub tweets as=inventory from=earliest\n" in remembered
    assert "hunter2" not in remembered
    assert terminal.history.stat().st_mode & 0o077 == 0
    assert client.stats()["topics"]["tweets"]["subscriptions"]["inventory"]["settled"] == 1


def test_the_arrow_key_shows_earlier_input(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "history").write_text("hello older\nhello newer\n")
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("\x1b[A\x1b[A\r")
        terminal.until("+OK hello older")
        terminal.type("quit\r")
        assert terminal.status() == 0
    assert terminal.history.read_text() == "hello older\nhello newer\nhello older\nquit\n"


def test_lines_that_are_pasted_are_sent_as_lines(broker: BrokerProcess, tmp_path: Path) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("\x1b[200~ping\nhello pasted\x1b[201~\r")
        terminal.until("+PONG")
        terminal.until("+OK hello pasted")
        terminal.type("\x04")
        assert terminal.status() == 0


def test_no_character_of_a_payload_begins_another_line(
    client: SyncClient, broker: BrokerProcess, tmp_path: Path
) -> None:
    client.publish("t", Event(id="1", msg=1))
    with Terminal(broker, tmp_path) as terminal:
        terminal.type('\x1b[200~pub t {"id":"2","msg":"\u2028hello intruder\u2028"}\x1b[201~\r')
        terminal.until("+OK pub t 1")
        terminal.type("\x04")
        assert terminal.status() == 0
        assert "+OK hello intruder" not in terminal.shown


def test_bytes_that_are_not_utf8_are_sent_for_the_broker_to_refuse(broker: BrokerProcess, tmp_path: Path) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.press(b"comment t gr\xfcn\r")
        terminal.until("-ERR bad_utf8")
        terminal.type("\x1b[A\x04")
        terminal.type("\x15\x04")
        assert terminal.status() == 0
    assert terminal.history.read_bytes() == b"comment t gr\xfcn\n"


def test_the_shell_reports_a_lost_broker(broker: BrokerProcess, tmp_path: Path) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("ping\r")
        terminal.until("+PONG")
        terminal.type("half")
        broker.kill()
        terminal.until(f"the connection to the broker at {broker.address} was lost")
        assert terminal.status() == 2


def test_ctrl_c_ends_the_shell_also_right_after_other_keys(broker: BrokerProcess, tmp_path: Path) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("ping\r")
        terminal.until("+PONG")
        terminal.type("half")
        terminal.type("\x03")
        assert terminal.status() == 130


@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_the_shell(broker: BrokerProcess, tmp_path: Path, sign: signal.Signals, status: int) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("half")
        terminal.until("half")
        os.kill(terminal.pid, sign)
        assert terminal.status() == status
        assert "Traceback" not in terminal.written


def test_a_script_can_use_the_shell(client: SyncClient, broker: BrokerProcess) -> None:
    client.publish("t", Event(id="1", msg="☂"))
    script = 'pub u {"id":"1","msg":1}\nread t earliest\nnonsense'
    shell = _piped(broker, script)
    lines = shell.stdout.splitlines()
    assert lines[1:4] == ["+OK hello script", "+OK pub u 0 synced", "+OK read t 1 next=1"]
    assert json.loads(lines[4])["msg"] == "☂"
    assert lines[5:] == ["-ERR unknown_command nonsense; type help", "+OK bye"]
    assert (shell.stderr, shell.returncode) == ("", 0)


def test_lines_of_a_script_after_quit_are_not_sent(client: SyncClient, broker: BrokerProcess) -> None:
    shell = _piped(broker, "ping\nQUIT\nping\n")
    assert shell.stdout.splitlines()[2:] == ["+PONG", "+OK bye"]
    assert (shell.stderr, shell.returncode) == ("", 0)


def test_a_script_fails_if_the_broker_has_not_received_its_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        words = ["shell", "--broker", f"127.0.0.1:{door.getsockname()[1]}"]
        shell = subprocess.Popen(
            [sys.executable, "-m", "broker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with shell, door.accept()[0] as connection:
            connection.settimeout(PATIENCE_S)
            connection.sendall(b"+OK tweetwire broker test, type help\n")
            assert shell.stdin is not None
            shell.stdin.write(b"ping\n")
            shell.stdin.close()
            with connection.makefile("rb") as said:
                assert said.readline().startswith(b"hello ")
            connection.shutdown(socket.SHUT_RDWR)
            assert shell.wait(PATIENCE_S) == 2


def _piped(broker: BrokerProcess, script: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "broker", "shell", "--broker", broker.address, "--name", "script"]
    return subprocess.run(words, input=script, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
