"""Run programs of the product as processes on a fresh folder and free ports, each until the end of a `with` block."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tweetwire.runtime.launching import ProgramProcess, module_argv

__all__ = ["NotMeasured", "folder", "program"]

_START_S = 120.0


class NotMeasured(Exception):
    """A measurement needs something that this machine lacks; the text names it."""


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a folder on the disk that the programs use; it is deleted with the block."""
    with tempfile.TemporaryDirectory(prefix="tweetwire-bench-", dir=".") as path:
        yield Path(path).absolute()


@contextmanager
def program(log: Path, *words: object) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """Start ``python -m <words>``, with its log in `log`. Yields its port (0 without one) and process once it is ready."""
    with ProgramProcess(module_argv(*words), log, start_within_s=_START_S) as started:
        _, colon, port = started.address.rpartition(":")
        yield int(port) if colon and port.isdecimal() else 0, started.process
