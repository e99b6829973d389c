"""A real Redis for each test, and a real Kafka for each file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bridge.programs import Bridge
from tests.support.kafka_servers import KafkaServer
from tests.support.processes import BrokerProcess
from tests.support.redis_servers import RedisServer, find_server

Start = Callable[..., Bridge]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(find_server("redis"), tmp_path / "redis") as running:
        yield running


@pytest.fixture(scope="module")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A server of Kafka that the module's tests share."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def start(tmp_path: Path, broker: BrokerProcess) -> Iterator[Start]:
    """Start a bridge of the test's broker and wait until it is ready."""
    running: list[Bridge] = []

    def start(*flags: str) -> Bridge:
        bridge = Bridge(tmp_path / f"bridge{len(running)}.log", broker.address, *flags)
        running.append(bridge)
        bridge.start()
        return bridge

    yield start
    for bridge in running:
        bridge.kill()
