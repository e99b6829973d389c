"""Our programs as real processes, for tests."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

__all__ = ["BrokerProcess"]

READY = re.compile(r"ready on ([^\s\"]+)")
START_S = 20.0


class BrokerProcess:
    """``python -m broker`` on a folder; after the first start it keeps its port."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        self.data_dir = data_dir
        self.log_path = data_dir.with_suffix(".log")
        self.port = 0
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        """host:port"""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it is ready."""
        began = self.log_path.stat().st_size if self.log_path.exists() else 0
        command = [sys.executable, "-m", "broker", "--port", str(self.port), "--data-dir", str(self.data_dir)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--metrics-port", "0", "--log-json", *self._flags], stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while (address := self._ready_address(began)) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the broker did not start:\n{self.log_path.read_text()[began:]}")
            time.sleep(0.02)
        self.port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def terminate(self, timeout_s: float = 15.0) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout_s)

    def logged(self) -> list[dict[str, object]]:
        """What it has logged."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines() if line.startswith("{")]

    def _ready_address(self, began: int) -> str | None:
        found = READY.search(self.log_path.read_text()[began:])
        return found and found[1]
