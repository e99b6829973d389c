"""The ingester and the simulator as processes, and a person at the telnet port."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

READY = re.compile(r"ready on 127\.0\.0\.1:(\d+)")


def until(condition: Callable[[], Any], timeout_s: float = 30.0, tell: Callable[[], str] = str) -> None:
    """Wait until `condition()` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.02)


class Program:
    """``python -m <module>`` in a folder of its own; after the first start it keeps its port."""

    def __init__(self, module: str, folder: Path, *flags: object) -> None:
        self.port = 0
        self._folder = folder
        self._log = folder / f"{module}.log"
        self._module = module
        self._flags = [str(flag) for flag in flags]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        began = len(self.log())
        command = [sys.executable, "-m", self._module, "--port", str(self.port), "--log-json"]
        if "--metrics-port" not in self._flags:
            command += ["--metrics-port", "0"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._flags], stderr=log, cwd=self._folder, start_new_session=True
            )
        process = self._process
        until(lambda: READY.search(self.log()[began:]) or process.poll() is not None, 30, self.log)
        found = READY.search(self.log()[began:])
        assert found, self.log()
        self.port = int(found[1])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def terminate(self, timeout_s: float = 20.0) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout_s)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for its own end; returns the exit status."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log()) from None

    def log(self) -> str:
        """Everything it has logged."""
        return self._log.read_text() if self._log.exists() else ""

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log's entries of one kind."""
        entries = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [entry for entry in entries if entry["event"] == event]


class Person:
    """Types commands at the telnet port and reads the lines that come."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=15)
        self._lines = self._socket.makefile("r", encoding="utf-8", newline="\r\n")
        self.greeting = self.line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def type(self, command: str) -> None:
        """Send a command."""
        self._socket.sendall(command.encode() + b"\r\n")

    def line(self) -> str:
        """Read a line; empty at the end."""
        return self._lines.readline().rstrip("\r\n")

    def answer(self) -> str:
        """The next line that is no tweet, and does not tell of tweets that this slow reader has missed."""
        while (line := self.line()).startswith("tweet: ") or "not shown" in line:
            pass
        return line

    def ask(self, command: str, lines: int = 1) -> str:
        """Send a command and return its answer."""
        self.type(command)
        return "\n".join(self.answer() for _ in range(lines))
