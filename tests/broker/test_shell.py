"""The shell: on a terminal of its own, and with a script for its input."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import pytest

from broker import Event, SyncClient
from tests.processes import BrokerProcess

PATIENCE_S: Final = 60.0
# What moves the cursor, erases and colours; a sequence that has not come whole is left.
ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|[()][A-Z0-9]|[=>78])|\r")


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[SyncClient]:
    with SyncClient(broker.address, name="test") as client:
        yield client


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.history = home / "history"
        self.written = ""
        self._seen = 0
        self.pid, self._handle = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            flags = ["--broker", broker.address, "--history", str(self.history)]
            os.execv(sys.executable, [sys.executable, "-m", "broker", "shell", *flags])

    def __enter__(self) -> Self:
        self.until("hello shell")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def type(self, keys: str) -> None:
        self.press(keys.encode())

    def press(self, keys: bytes) -> None:
        os.write(self._handle, keys)

    def until(self, text: str) -> None:
        """Read until `text` has been shown behind what the last call waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while (at := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, self.written
            self._read()
        self._seen = at + len(text)

    def status(self) -> int:
        """Read until it has ended, and return its status."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            assert time.monotonic() < deadline, self.written
            self._read()
        return os.waitstatus_to_exitcode(found[1])

    @property
    def shown(self) -> str:
        return ESCAPES.sub("", self.written)

    def _read(self) -> None:
        if select.select([self._handle], [], [], 0.1)[0]:
            try:
                self.written += os.read(self._handle, 65536).decode(errors="replace")
            except OSError:
                time.sleep(0.01)  # Linux's EIO: the other side of the terminal is closed, and the end is near


def test_it_completes_shows_events_amid_typing_and_remembers(
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
        # The line that was being typed is put back below, and goes on.
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


def test_what_was_typed_before_comes_back_with_the_arrow_key(broker: BrokerProcess, tmp_path: Path) -> None:
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


def test_what_is_no_utf8_is_for_the_broker_to_refuse(broker: BrokerProcess, tmp_path: Path) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.press(b"comment t gr\xfcn\r")
        terminal.until("-ERR bad_utf8")
        terminal.type("\x1b[A\x04")
        terminal.type("\x15\x04")
        assert terminal.status() == 0
    assert terminal.history.read_bytes() == b"comment t gr\xfcn\n"


def test_it_says_so_when_the_broker_is_gone(broker: BrokerProcess, tmp_path: Path) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("ping\r")
        terminal.until("+PONG")
        terminal.type("half")
        broker.kill()
        terminal.until(f"the connection to the broker at {broker.address} was lost")
        assert terminal.status() == 2


def test_ctrl_c_ends_it_also_right_behind_other_keys(broker: BrokerProcess, tmp_path: Path) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("ping\r")
        terminal.until("+PONG")
        terminal.type("half")
        terminal.type("\x03")
        assert terminal.status() == 130


@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it(broker: BrokerProcess, tmp_path: Path, sign: signal.Signals, status: int) -> None:
    with Terminal(broker, tmp_path) as terminal:
        terminal.type("half")
        terminal.until("half")
        os.kill(terminal.pid, sign)
        assert terminal.status() == status
        assert "Traceback" not in terminal.written


def test_a_script_can_use_it(client: SyncClient, broker: BrokerProcess) -> None:
    client.publish("t", Event(id="1", msg="☂"))
    script = 'pub u {"id":"1","msg":1}\nread t earliest\nnonsense'
    shell = _piped(broker, script)
    lines = shell.stdout.splitlines()
    assert lines[1:4] == ["+OK hello script", "+OK pub u 0 synced", "+OK read t 1 next=1"]
    assert json.loads(lines[4])["msg"] == "☂"
    assert lines[5:] == ["-ERR unknown_command nonsense; type help", "+OK bye"]
    assert (shell.stderr, shell.returncode) == ("", 0)


def test_what_a_script_says_behind_quit_is_not_sent(client: SyncClient, broker: BrokerProcess) -> None:
    shell = _piped(broker, "ping\nQUIT\nping\n")
    assert shell.stdout.splitlines()[2:] == ["+PONG", "+OK bye"]
    assert (shell.stderr, shell.returncode) == ("", 0)


def test_a_script_of_which_the_broker_has_not_seen_the_end_has_failed() -> None:
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
