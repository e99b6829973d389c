"""The health check of the containers, on a real broker."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.processes import BrokerProcess

HEALTHY = ROOT / "deploy/healthy.py"


@pytest.fixture
def metrics_port(tmp_path: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with BrokerProcess(tmp_path / "broker", "--metrics-port", str(port), "--topic", "tweets"):
        yield port


def healthy(port: int, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-IS", str(HEALTHY), str(port), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr.strip()


def test_a_program_that_serves_is_healthy(metrics_port: int) -> None:
    assert healthy(metrics_port, "/metrics") == (0, "")
    assert healthy(metrics_port, "/metrics", "tweetwire_broker_connections", "tweetwire_broker_log_bytes=0") == (0, "")


def test_a_metric_that_is_missing_or_too_low_is_reported(metrics_port: int) -> None:
    assert healthy(metrics_port, "/metrics", "tweetwire_broker_nothing") == (1, "there is no tweetwire_broker_nothing")
    low = healthy(metrics_port, "/metrics", "tweetwire_broker_connections", "tweetwire_broker_log_bytes=1")
    assert low == (1, "tweetwire_broker_log_bytes is 0")


def test_a_port_without_a_listener_is_reported() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        status, reason = healthy(port, "/metrics")
    assert status == 1
    assert reason.startswith(f"no answer from port {port}")
