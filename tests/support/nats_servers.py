"""NATS with JetStream as real processes that keep their ports and data over a kill: one server, or a cluster of three."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import nats

from bench.engine_files import find_engine_program
from demo.ports import Port, claim
from tests.support.needed import needed_engine
from tests.support.processes import START_S
from tests.support.waiting import until
from tweetwire.runtime.launching import ProgramProcess

__all__ = ["NatsCluster", "NatsServer", "find_nats_server", "with_nats"]

T = TypeVar("T")


def find_nats_server() -> str:
    """Return the path of the server. Without it, the test is skipped, or fails where the engines are required."""
    sentence = "there is no nats-server of the version that the tests need; `make engines` installs it (needs Go)"
    return needed_engine(find_engine_program("nats-server"), sentence)


class NatsServer(ProgramProcess):
    """One server. `routes` are the cluster ports of all servers of a cluster, of which `route` is its own.

    `more` are more settings, by name.
    """

    def __init__(
        self, folder: Path, name: str = "n1", route: int = 0, routes: tuple[int, ...] = (), **more: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.name = name
        self.port, self.monitor = claim([Port(0, "nats", ""), Port(0, "nats", "")])
        config: dict[str, Any] = {
            "server_name": name,
            "listen": f"127.0.0.1:{self.port}",
            "http": f"127.0.0.1:{self.monitor}",
            "jetstream": {"store_dir": str(folder / "data"), "max_memory_store": 1 << 28, "max_file_store": 1 << 32},
        }
        config |= more
        if routes:
            config["cluster"] = {
                "name": "c",
                "listen": f"127.0.0.1:{route}",
                "routes": [f"nats://127.0.0.1:{port}" for port in routes],
                "pool_size": 1,
            }
        path = folder / "nats.conf"
        path.write_text(json.dumps(config))
        super().__init__(
            [find_nats_server(), "-c", str(path)], folder / "log", find_address=self._answers, start_within_s=START_S
        )

    def __exit__(self, *_: object) -> None:
        self.kill()

    def is_healthy(self) -> bool:
        """Whether the server says that JetStream works."""
        try:
            with urlopen(f"http://127.0.0.1:{self.monitor}/healthz", timeout=5) as answer:
                return bool(json.load(answer).get("status") == "ok")
        except (OSError, ValueError):
            return False

    def _answers(self) -> str | None:
        # A server of a cluster is healthy only once there are more servers, so it is enough that it listens.
        try:
            with urlopen(f"http://127.0.0.1:{self.monitor}/varz", timeout=5):
                return f"127.0.0.1:{self.port}"
        except OSError:
            return None


class NatsCluster:
    """Three servers, each with a replica of every stream that has three."""

    def __init__(self, folder: Path) -> None:
        routes = tuple(claim([Port(0, "nats", "")] * 3))
        self.servers = [NatsServer(folder / f"n{at}", f"n{at}", route, routes) for at, route in enumerate(routes)]

    def start(self) -> None:
        """Start all servers, and wait until the cluster works."""
        for server in self.servers:
            server.start()
        until(lambda: all(server.is_healthy() for server in self.servers), 60)

    def kill(self) -> None:
        """Kill all servers."""
        for server in self.servers:
            server.kill()

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """The addresses of all servers."""
        return tuple(("127.0.0.1", server.port) for server in self.servers)


async def _ignore(_: Exception) -> None:
    """Let the library try the next server without a line in the log."""


def with_nats(ports: Sequence[int], work: Callable[[Any], Awaitable[T]]) -> T:
    """Run a function with a plain connection, and return its result. It works also where an event loop runs already."""

    async def run() -> T:
        addresses = [f"nats://127.0.0.1:{port}" for port in ports]
        client = await nats.connect(addresses, connect_timeout=20, error_cb=_ignore)
        try:
            return await work(client)
        finally:
            await client.close()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, run()).result()
