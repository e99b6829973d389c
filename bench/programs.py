"""Programs of the product as processes on a fresh folder and free ports, each ending with its block."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["NotMeasured", "folder", "program"]

_READY = re.compile(r"ready on (?:[^\s\"]+:(\d+))?")
_START_S = 120.0


class NotMeasured(Exception):
    """Something that a measurement needs is not on this machine; the text says what."""


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder on the disk that the programs use, gone with the block."""
    with tempfile.TemporaryDirectory(prefix="tweetwire-bench-", dir=".") as path:
        yield Path(path).absolute()


@contextmanager
def program(log: Path, *words: object) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """Start ``python -m <words>``, logging into `log`; give its port (0 where it has none) and process when it is ready."""
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-m", *map(str, words)], stderr=stderr)
    with process:
        try:
            yield _wait_for_port(log, process), process
        finally:
            process.terminate()


def _wait_for_port(log: Path, process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = _READY.search(log.read_text())
        if found:
            return int(found[1] or 0)
        time.sleep(0.02)
    raise RuntimeError(f"{' '.join(map(str, process.args[2:4]))} did not start:\n{log.read_text()}")  # type: ignore[index]
