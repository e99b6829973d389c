"""Our programs as real processes, for tests."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

__all__ = ["BrokerProcess", "Process", "Server", "until"]

START_S = 60.0


def until(condition: Callable[[], Any], timeout_s: float = 30.0, tell: Callable[[], object] = str) -> None:
    """Poll until `condition` holds; fails with what `tell` returns."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.02)


class Process:
    """``python -m …``, logging into a file; may be started again after its end."""

    def __init__(self, log_path: Path, *words: object, folder: Path | None = None) -> None:
        self.log_path = log_path
        self.words = [str(word) for word in words]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process."""
        return self._running.pid

    def launch(self) -> None:
        """Start it without waiting."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self.words], stderr=log, cwd=self._folder, start_new_session=True
            )

    def start(self) -> None:
        """Start it and wait until it is ready."""
        began = len(self.log())
        self.launch()
        process = self._running
        until(
            lambda: " ready on " in self.log()[began:] or process.poll() is not None,
            START_S,
            lambda: self.log()[began:],
        )
        assert process.poll() is None, self.log()[began:]

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def terminate(self, timeout_s: float = 20.0) -> int:
        """SIGTERM; returns the exit status."""
        self._running.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for its own end; returns the exit status."""
        try:
            return self._running.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log()) from None

    def log(self) -> str:
        """Everything it has logged."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def logged(self, event: str | None = None) -> list[dict[str, Any]]:
        """The log's entries, or those of one kind."""
        entries = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [entry for entry in entries if event in (None, entry["event"])]

    def said(self, text: str) -> bool:
        """Whether its log has `text`."""
        return text in self.log()

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was not started"
        return self._process


class Server(Process):
    """A program that listens; after the first start it keeps its port."""

    _READY = re.compile(r" ready on 127\.0\.0\.1:(\d+)")

    def __init__(self, module: str, log_path: Path, *flags: object, folder: Path | None = None) -> None:
        metrics = () if "--metrics-port" in flags else ("--metrics-port", 0)
        super().__init__(log_path, module, "--port", 0, "--log-json", *metrics, *flags, folder=folder)
        self.port = 0

    @property
    def address(self) -> str:
        """host:port"""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it is ready."""
        super().start()
        self.port = int(self._READY.findall(self.log())[-1])
        self.words[2] = str(self.port)


class BrokerProcess(Server):
    """``python -m broker`` on a folder."""

    def __init__(self, data_dir: Path, *flags: object) -> None:
        super().__init__("broker", data_dir.with_suffix(".log"), "--data-dir", data_dir, *flags)
        self.data_dir = data_dir
