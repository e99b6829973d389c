"""The fixture for tests of users: a real broker that ends with the test."""

import subprocess
import sys
from pathlib import Path

import pytest

from subscriber.pytest_plugin import started_broker
from tweetwire.protocol.errors import StartError

TESTS = """
from tweetwire import Event, SyncClient

def test_an_order_is_stored(tweetwire_broker):
    with SyncClient(tweetwire_broker.address) as client:
        assert client.publish("orders", Event(id="o-1", msg=1)).first == 0

def test_the_next_test_has_an_empty_one(tweetwire_broker):
    with SyncClient(tweetwire_broker.address) as client:
        assert "orders" not in [info.topic for info in client.topics()]
"""


def test_the_plugin_gives_each_test_a_broker(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "subscriber.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_broker_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(StartError, match=r"did not start:\n(.|\n)*--durability"),
        started_broker(tmp_path, "--durability", "marble"),
    ):
        pass


def test_a_started_broker_ends_with_the_block(tmp_path: Path) -> None:
    with started_broker(tmp_path) as broker:
        assert broker.process.poll() is None
    assert broker.process.returncode == 0
