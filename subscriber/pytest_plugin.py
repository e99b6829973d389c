"""A broker of its own for each of your tests: the fixture ``tweetwire_broker``, which pytest finds by itself.

::

    async def test_an_order_is_taken(tweetwire_broker):
        async with Client(tweetwire_broker.address) as client: ...
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

__all__ = ["StartedBroker", "started_broker", "tweetwire_broker"]

START_S: Final = 60.0
STOP_S: Final = 20.0
POLL_S: Final = 0.02
_READY: Final = re.compile(r"broker ready on ([^\s\"]+)")


class StartedBroker:
    """A broker that runs: its address (host:port), its process, its data and its log."""

    def __init__(self, address: str, process: "subprocess.Popen[bytes]", data_dir: Path, log_path: Path) -> None:
        self.address = address
        self.process = process
        self.data_dir = data_dir
        self.log_path = log_path


@contextmanager
def started_broker(folder: Path, *flags: str) -> Iterator[StartedBroker]:
    """Start ``python -m broker`` on a folder and a free port of 127.0.0.1, and end it with the block.

    Its promise is ``written``, as a test's broker need not outlive the machine; `flags` can tell it otherwise. Raises
    RuntimeError with the log where it does not start.
    """
    data_dir, log_path = folder / "data", folder / "broker.log"
    words = ("--port", "0", "--metrics-port", "0", "--durability", "written", "--data-dir", str(data_dir), *flags)
    with log_path.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "broker", *words], stderr=log)
    with process:
        try:
            yield StartedBroker(_wait_for_address(process, log_path), process, data_dir, log_path)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def tweetwire_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBroker]:
    """A real broker, empty, on a free port; it ends with the test."""
    with started_broker(tmp_path_factory.mktemp("tweetwire_broker")) as broker:
        yield broker


def _wait_for_address(process: "subprocess.Popen[bytes]", log_path: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = _READY.search(log_path.read_text())
        if found:
            return found[1]
        time.sleep(POLL_S)
    raise RuntimeError(f"the broker did not start:\n{log_path.read_text()}")
