"""The engines under test: the double in memory, and real servers of Redis, Valkey, NATS and Kafka."""

from collections.abc import Iterator
from typing import Any

import pytest

from bridge.central import Destination, Origin, Registry
from bridge.engines.memory import MemoryDestination, MemoryOrigin, MemoryStream
from bridge.engines.memory_registry import MemoryHeartbeats, MemoryRegistry
from bridge.engines.redis import RedisDestination, RedisOrigin
from bridge.engines.redis_link import RedisLogin
from bridge.engines.redis_registry import RedisRegistry
from tests.bridge.engines.jetstream_engine import JetStreamEngine
from tests.bridge.engines.kafka_engine import KafkaEngine
from tests.support.kafka_servers import KafkaServer
from tests.support.nats_servers import NatsServer
from tests.support.redis_servers import RedisServer, find_server


class MemoryEngine:
    """A stream in memory."""

    def __init__(self) -> None:
        self.stream = MemoryStream()
        self.stream.centre = ""
        self.heartbeats = MemoryHeartbeats()

    def destination(self, topic: str = "orders", **options: Any) -> Destination:
        return MemoryDestination(self.stream, topic, **options)

    def origin(self) -> Origin:
        return MemoryOrigin(self.stream)

    def registry(self, **options: Any) -> Registry:
        return MemoryRegistry(self.heartbeats, **options)

    def delete(self) -> None:
        self.stream.delete()

    def add(self, value: bytes) -> None:
        self.stream.make()
        self.stream.add(value, {})

    def remove_first(self, count: int) -> None:
        del self.stream.entries[:count]


class RedisEngine:
    """A stream of a real server."""

    def __init__(self, server: RedisServer, stream: str) -> None:
        self.login = RedisLogin("127.0.0.1", server.port, timeout_s=20)
        self.stream = stream
        self.plain = server.client()

    def destination(self, topic: str = "orders", **options: Any) -> Destination:
        return RedisDestination(self.login, self.stream, topic, **options)

    def origin(self) -> Origin:
        return RedisOrigin(self.login, self.stream)

    def registry(self, **options: Any) -> Registry:
        return RedisRegistry(self.login, **options)

    def delete(self) -> None:
        self.plain.delete(self.stream)

    def add(self, value: bytes) -> None:
        self.plain.xadd(self.stream, {"data": value})

    def remove_first(self, count: int) -> None:
        length = int(self.plain.xlen(self.stream))
        self.plain.xtrim(self.stream, maxlen=length - count, approximate=False)


Engine = MemoryEngine | RedisEngine | JetStreamEngine | KafkaEngine


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RedisServer]]:
    """The servers that tests have used so far, by name."""
    running: dict[str, RedisServer] = {}
    yield running
    for server in running.values():
        server.kill()


def start_server(servers: dict[str, RedisServer], name: str, tmp_path_factory: pytest.TempPathFactory) -> RedisServer:
    """Return a running server, which the module's tests share."""
    if name not in servers:
        server = RedisServer(find_server(name), tmp_path_factory.mktemp(name))
        server.start()
        servers[name] = server
    return servers[name]


@pytest.fixture(params=["memory", "redis", "valkey", "jetstream", "kafka"])
def engine(
    request: pytest.FixtureRequest, servers: dict[str, RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Each engine with an empty stream."""
    if request.param == "memory":
        yield MemoryEngine()
        return
    if request.param == "jetstream":
        jetstream = JetStreamEngine(request.getfixturevalue("nats_server"))
        yield jetstream
        jetstream.clear()
        return
    if request.param == "kafka":
        kafka = KafkaEngine(request.getfixturevalue("kafka_server"))
        yield kafka
        kafka.clear()
        return
    engine = RedisEngine(start_server(servers, request.param, tmp_path_factory), "orders")
    yield engine
    engine.plain.flushall()
    engine.plain.close()


@pytest.fixture
def kafka_engine(kafka_server: KafkaServer) -> Iterator[KafkaEngine]:
    """A server of Kafka without the topic."""
    engine = KafkaEngine(kafka_server)
    yield engine
    engine.delete()


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server that the module's tests share."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def jetstream_engine(nats_server: NatsServer) -> Iterator[JetStreamEngine]:
    """A server of NATS without a stream."""
    engine = JetStreamEngine(nats_server)
    yield engine
    engine.clear()


@pytest.fixture(params=["redis", "valkey"])
def redis_engine(
    request: pytest.FixtureRequest, servers: dict[str, RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisEngine]:
    """Each server with an empty stream."""
    engine = RedisEngine(start_server(servers, request.param, tmp_path_factory), "orders")
    yield engine
    engine.plain.flushall()
    engine.plain.close()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
