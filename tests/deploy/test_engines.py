"""The engines of the Compose profiles, with the servers of this machine in place of the images, and the bridge beside them."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import nats
import pytest
import redis

from demo.ports import free_port
from tests.deploy.test_files import SERVICES, environment_of, resolved, words_after_python_m
from tests.support.nats_servers import find_nats_server
from tests.support.paths import ROOT
from tests.support.processes import START_S, BrokerProcess
from tests.support.redis_servers import find_server
from tests.support.waiting import until
from tweetwire import Event, SyncClient
from tweetwire.runtime.launching import ProgramProcess, module_argv

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]


def flags_of(service: str, replaced: Mapping[str, str]) -> list[str]:
    """Return the command of a service, with some words replaced."""
    words = map(resolved, SERVICES[service]["command"])
    return [replaced.get(word, word) for word in words]


@contextmanager
def bridge_of(service: str, broker: BrokerProcess, engine: str, folder: Path) -> Iterator[list[str]]:
    """Run the bridge of a service. Yields its health check, for this machine."""
    port = free_port()
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("TWEETWIRE_")}
    environment = {name: value for name, value in environment_of(service).items() if value}
    out = environment["TWEETWIRE_BRIDGE_OUT"].replace("redis:6379", engine).replace("nats:4222", engine)
    ours = {"TWEETWIRE_BRIDGE_BROKER": broker.address, "TWEETWIRE_BRIDGE_OUT": out}
    ours["TWEETWIRE_BRIDGE_METRICS_PORT"] = str(port)
    process = ProgramProcess(
        module_argv(*words_after_python_m(service)),
        folder / "bridge.log",
        environment=theirs | environment | ours,
        start_within_s=START_S,
        folder=ROOT,
    )
    _, script, _, *others = SERVICES[service]["healthcheck"]["test"]
    assert script == "healthy"
    with process:
        yield [sys.executable, str(ROOT / "deploy" / "healthy.py"), str(port), *others]


def publish(broker: BrokerProcess) -> None:
    with SyncClient(broker.address, name="test") as client:
        for topic in ("tweets", "users"):
            client.publish_many(topic, [Event(id=f"e{number}", msg=number) for number in range(10)])


def is_healthy(check: list[str]) -> bool:
    return subprocess.run(check, capture_output=True, timeout=60, check=False).returncode == 0


def test_the_redis_of_the_profile_has_a_password_and_gets_the_topics(tmp_path: Path, broker: BrokerProcess) -> None:
    port = free_port()
    words = flags_of("redis", {"redis-server": find_server("redis"), "/data": str(tmp_path)})
    password = environment_of("redis")["REDISCLI_AUTH"]

    def answers() -> str | None:
        try:
            redis.Redis(port=port, password=password).ping()
        except redis.exceptions.ConnectionError:
            return None
        return f"127.0.0.1:{port}"

    with ProgramProcess(
        [*words, "--port", str(port)], tmp_path / "redis.log", find_address=answers, start_within_s=START_S
    ):
        with pytest.raises(redis.exceptions.AuthenticationError):
            redis.Redis(port=port).ping()
        client = redis.Redis(port=port, password=password)
        assert "always" in str(client.config_get("appendfsync"))
        publish(broker)
        with bridge_of("bridge_redis", broker, f"127.0.0.1:{port}", tmp_path) as check:
            until(lambda: (client.xlen("tweets"), client.xlen("users")) == (10, 10), 60)
            until(lambda: is_healthy(check), 60)


def test_the_nats_of_the_profile_has_a_password_and_gets_the_topics(tmp_path: Path, broker: BrokerProcess) -> None:
    port, monitor = free_port(), free_port()
    text = (ROOT / "deploy" / "nats.conf").read_text()
    for word, here in (
        ("0.0.0.0:4222", f"127.0.0.1:{port}"),
        ("127.0.0.1:8222", f"127.0.0.1:{monitor}"),
        ("/data", str(tmp_path / "data")),
    ):
        assert word in text
        text = text.replace(word, here)
    config = tmp_path / "nats.conf"
    config.write_text(text)
    words = flags_of("nats", {"--config=/etc/nats/nats.conf": f"--config={config}"})

    def answers() -> str | None:
        try:
            with urlopen(f"http://127.0.0.1:{monitor}/healthz", timeout=5):
                return f"127.0.0.1:{port}"
        except OSError:
            return None

    with ProgramProcess(
        [find_nats_server(), *words], tmp_path / "nats.log", find_address=answers, start_within_s=START_S
    ):
        with urlopen(f"http://127.0.0.1:{monitor}/varz", timeout=5) as answer:
            assert json.load(answer)["jetstream"]["config"]["sync_always"]
        assert b"Authorization Violation" in answer_to(port, "wrong")
        assert b"PONG" in answer_to(port, "tweetwire")
        publish(broker)
        with bridge_of("bridge_nats", broker, f"127.0.0.1:{port}", tmp_path) as check:
            until(lambda: is_healthy(check), 60)
            until(lambda: asyncio.run(count(port)) == [10, 10], 60)


def answer_to(port: int, password: str) -> bytes:
    """Return the answer of the server to a login and a ping."""
    login = json.dumps({"user": "tweetwire", "pass": password, "verbose": False})
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"CONNECT {login}\r\nPING\r\n".encode())
        answer = b""
        while b"PONG" not in answer and b"-ERR" not in answer:
            answer += connection.recv(4096)
        return answer


async def count(port: int) -> list[int]:
    """Return the number of messages of both streams."""
    client = await nats.connect(f"nats://127.0.0.1:{port}", user="tweetwire", password="tweetwire")
    try:
        found = [await client.jetstream().stream_info(name) for name in ("TWEETS", "USERS")]
        return [one.state.messages for one in found]
    finally:
        await client.close()
