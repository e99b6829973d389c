"""A broker process with the HTTP gateway, and requests to it."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.processes import BrokerProcess

__all__ = ["HttpBroker", "basic", "http_broker", "lines_of"]


class HttpBroker(BrokerProcess):
    """A broker with the gateway on a free port."""

    def __init__(self, data_dir: Path, *flags: object) -> None:
        super().__init__(data_dir, "--http-port", 0, *flags)

    @property
    def http_port(self) -> int:
        """The port of the gateway since the last start."""
        return int(self.logged("HTTP gateway is listening")[-1]["on"].rpartition(":")[2])

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return f"http://127.0.0.1:{self.http_port}"

    def client(self, **settings: Any) -> httpx.Client:
        """Return a client with the gateway's address."""
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False, **settings)


@contextmanager
def http_broker(data_dir: Path, *flags: object) -> Iterator[HttpBroker]:
    """Start a broker with the gateway, and kill it at the end."""
    with HttpBroker(data_dir, *flags) as broker:
        yield broker


def lines_of(answer: httpx.Response) -> list[Any]:
    """Return the JSON values of an answer with JSON Lines."""
    return [httpx.Response(200, content=line).json() for line in answer.content.splitlines()]


def basic(user: str, token: str) -> dict[str, str]:
    """Return the header of a user."""
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()}
