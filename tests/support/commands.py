"""Run commands of ``tweetwire``: in this process, which is fast, or as processes, as a user does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.support.processes import BrokerProcess
from tweetwire.cli import main

__all__ = ["PATIENCE_S", "Cli", "Finished", "Tweetwire"]

PATIENCE_S = 60.0


class Cli:
    """Runs commands in this process against a broker, and keeps their error output."""

    def __init__(self, broker: BrokerProcess, capture: pytest.CaptureFixture[str]) -> None:
        self._address = broker.address
        self._capture = capture
        self.errors = ""

    def __call__(self, *words: str, status: int = 0) -> str:
        """Run a command to its end, check its exit status, and return its output."""
        self._capture.readouterr()
        assert main([*words, "--broker", self._address]) == status, self._capture.readouterr()
        out, self.errors = self._capture.readouterr()
        return out

    def json(self, *words: str) -> Any:
        """Run a command with ``--json``, and return the value that it writes."""
        return json.loads(self(*words, "--json"))


class Finished(NamedTuple):
    """The output of a command."""

    out: str
    errors: str


class Tweetwire:
    """Runs commands against one broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def __call__(self, *words: object, stdin: str | bytes = "", status: int = 0) -> Finished:
        """Run a command to its end, and check its exit status."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(self.argv(*words), check=False, input=data, capture_output=True, timeout=PATIENCE_S)
        assert done.returncode == status, done.stderr.decode()
        return Finished(done.stdout.decode(), done.stderr.decode())

    def argv(self, *words: object) -> list[str]:
        """Return the command line of a process."""
        command = [sys.executable, "-m", "tweetwire", *map(str, words)]
        return [*command, "--broker", self._broker.address]

    @contextmanager
    def started(self, *words: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """Start a command whose stdin, stdout and stderr are pipes; it is killed at the end of the block."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | options
        with subprocess.Popen(self.argv(*words), text=True, **pipes) as process:
            try:
                yield process
            finally:
                process.kill()
