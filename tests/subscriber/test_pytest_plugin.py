"""The fixture that a user's own tests have: found by pytest itself, a real broker, gone with the test."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from subscriber.pytest_plugin import started_broker

TESTS = """
from broker import Event, SyncClient

def test_an_order_is_stored(tweetwire_broker):
    with SyncClient(tweetwire_broker.address) as client:
        assert client.publish("orders", Event(id="o-1", msg=1)).first == 0

def test_the_next_test_has_an_empty_one(tweetwire_broker):
    with SyncClient(tweetwire_broker.address) as client:
        assert "orders" not in [info.topic for info in client.topics()]
"""


def test_pytest_finds_the_fixture_in_the_installed_package(tmp_path: Path) -> None:
    (found,) = entry_points(group="pytest11", name="tweetwire")
    assert found.value == "subscriber.pytest_plugin"
    (tmp_path / "test_orders.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_broker_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"did not start:\n(.|\n)*--durability"),
        started_broker(tmp_path, "--durability", "marble"),
    ):
        pass


def test_it_ends_with_the_block(tmp_path: Path) -> None:
    with started_broker(tmp_path) as broker:
        assert broker.process.poll() is None
    assert broker.process.returncode == 0
