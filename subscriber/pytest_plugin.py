"""The fixture ``tweetwire_broker``: a separate broker for each of your tests, with ``-p subscriber.pytest_plugin``.

::

    async def test_an_order_is_taken(tweetwire_broker):
        async with Client(tweetwire_broker.address) as client: ...
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tweetwire.runtime.launching import ProgramProcess, module_argv

__all__ = ["StartedBroker", "started_broker", "tweetwire_broker"]


class StartedBroker:
    """A running broker: its address (host:port), its process, its data and its log."""

    def __init__(self, address: str, process: "subprocess.Popen[bytes]", data_dir: Path, log_path: Path) -> None:
        self.address = address
        self.process = process
        self.data_dir = data_dir
        self.log_path = log_path


@contextmanager
def started_broker(folder: Path, *flags: str) -> Iterator[StartedBroker]:
    """Run ``python -m broker`` on a folder and a free port of 127.0.0.1 until the end of the block.

    The durability is ``written``, since a test's broker does not have to survive a crash of the machine; `flags` can change
    that.

    Raises:
        StartError: the broker did not start; the text holds its log.
    """
    data_dir, log_path = folder / "data", folder / "broker.log"
    words = ("--port", "0", "--metrics-port", "0", "--durability", "written", "--data-dir", str(data_dir), *flags)
    with ProgramProcess(module_argv("broker", *words), log_path) as broker:
        yield StartedBroker(broker.address, broker.process, data_dir, log_path)


@pytest.fixture
def tweetwire_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBroker]:
    """Start a real, empty broker on a free port; it ends with the test."""
    with started_broker(tmp_path_factory.mktemp("tweetwire_broker")) as broker:
        yield broker
