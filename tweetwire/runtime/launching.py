"""Start a program as a process, and wait until it serves."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tweetwire.protocol.errors import StartError

__all__ = ["READY", "ProgramProcess", "ReadyLine", "module_argv"]

READY: Final = r"ready on ([^\s\"]+)"
"""The text that each of our programs logs once it serves, in a log of JSON lines and in a log of text."""

START_S: Final = 60.0
STOP_S: Final = 20.0
_POLL_S: Final = 0.02
_SAID_CHARACTERS: Final = 4000


def module_argv(*words: object) -> list[str]:
    """Return the command line for ``python -m <words>`` with this Python."""
    return [sys.executable, "-m", *map(str, words)]


class ReadyLine:
    """Searches a program's log for the line that says the program serves. Earlier content of the log does not count."""

    def __init__(self, log_path: Path, pattern: str = READY) -> None:
        self._log_path = log_path
        self._pattern = re.compile(pattern.encode())
        self._start = log_path.stat().st_size if log_path.exists() else 0

    def address(self) -> str | None:
        """Return the address in the line, "" if the pattern has no group, or None if there is no such line yet."""
        if not self._log_path.exists():
            return None
        with self._log_path.open("rb") as log:
            log.seek(self._start)
            found = self._pattern.search(log.read())
        if found is None:
            return None
        return found[1].decode() if found.groups() and found[1] is not None else ""


class ProgramProcess:
    """A process that runs a command line and appends its output to a log. After its end it may be started again.

    The process has its own session, so that Ctrl-C in the terminal reaches only the program that started it. A ``with``
    block starts and stops the process.

    Args:
        argv: The command line.
        log_path: The file that receives stdout and stderr.
        find_address: Returns an address once the program serves. By default, the log is searched for `READY`.
        folder: The working directory of the process.
        environment: The environment variables of the process; None for those of this process.
        start_within_s: The longest wait until the program serves, in seconds.
    """

    def __init__(
        self,
        argv: Sequence[str],
        log_path: Path,
        *,
        find_address: Callable[[], str | None] | None = None,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        start_within_s: float = START_S,
    ) -> None:
        self.argv = list(argv)
        self.log_path = log_path
        self.address = ""
        self._find_address = find_address
        self._folder = folder
        self._environment = environment
        self._start_within_s = start_within_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting until it serves."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )

    def start(self) -> None:
        """Start the process and wait until it serves.

        Raises StartError with the end of the log if it does not serve in time. The process is then killed.
        """
        find_address = self._find_address or ReadyLine(self.log_path).address
        self.launch()
        deadline = time.monotonic() + self._start_within_s
        while (address := find_address()) is None:
            if not self.is_running or time.monotonic() > deadline:
                self.kill()
                raise StartError(f"{' '.join(self.argv[:4])} did not start:\n{self.log()[-_SAID_CHARACTERS:]}")
            time.sleep(_POLL_S)
        self.address = address

    def stop(self, within_s: float = STOP_S) -> None:
        """Stop the process with SIGTERM, and kill it if it does not end within `within_s` seconds."""
        if self.is_running:
            self.process.terminate()
            try:
                self.process.wait(within_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill the process with SIGKILL, as a crash would end it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self, within_s: float = STOP_S) -> int:
        """Send SIGTERM and return the exit status. Raises subprocess.TimeoutExpired after `within_s` seconds."""
        self.process.terminate()
        return self.wait(within_s)

    def wait(self, within_s: float = 60.0) -> int:
        """Wait until the process ends and return its exit status. Raises subprocess.TimeoutExpired after `within_s` seconds."""
        return self.process.wait(within_s)

    def log(self) -> str:
        """Return the whole content of the log."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process that was started last. Raises RuntimeError before the first start."""
        if self._process is None:
            raise RuntimeError(f"{' '.join(self.argv[:4])} was not started")
        return self._process
