"""Our programs as real processes, for tests."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tweetwire.runtime.launching import ProgramProcess, module_argv

__all__ = ["BrokerProcess", "Process", "Server"]


START_S = 90.0


class Process(ProgramProcess):
    """A process ``python -m …`` that logs into a file. As a context manager, it is killed at the end of the block."""

    def __init__(self, log_path: Path, *words: object, folder: Path | None = None) -> None:
        super().__init__([], log_path, folder=folder, start_within_s=START_S)
        self.words = [str(word) for word in words]

    def __exit__(self, *_: object) -> None:
        self.kill()

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        self.argv = self.command()
        super().launch()

    def command(self) -> list[str]:
        """Return the command line of the process."""
        return module_argv(*self.words)

    def wait(self, within_s: float = 60.0) -> int:
        """Wait until the process ends by itself. Returns the exit status."""
        try:
            return super().wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log()) from None

    def logged(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the log's entries, or those of one kind."""
        entries = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [entry for entry in entries if event in (None, entry["event"])]

    def said(self, text: str) -> bool:
        """Whether the log of the process contains `text`."""
        return text in self.log()


class Server(Process):
    """A program that listens; after the first start it keeps its port."""

    def __init__(self, module: str, log_path: Path, *flags: object, folder: Path | None = None) -> None:
        metrics = () if "--metrics-port" in flags else ("--metrics-port", 0)
        super().__init__(log_path, module, "--port", 0, "--log-json", *metrics, *flags, folder=folder)
        self.port = 0

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        super().start()
        self.port = int(self.address.rpartition(":")[2])
        self.words[2] = str(self.port)


class BrokerProcess(Server):
    """``python -m broker`` on a folder."""

    def __init__(self, data_dir: Path, *flags: object) -> None:
        super().__init__("broker", data_dir.with_suffix(".log"), "--data-dir", data_dir, *flags)
        self.data_dir = data_dir
