"""The MongoDBs that tests run against: the embedded one, and a container of the image that docker-compose.yml names."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import httpx

from demo.ports import free_port
from demo.replica_set import ReplicaSetSettings
from demo.replica_set import serve as make_replica_set

__all__ = ["container", "servers"]

_CHOICE = "TWEETWIRE_TEST_MONGODB"
_IMAGE = "mongo:7"
_SOCKET = Path("/var/run/docker.sock")
_ASK_WITHIN_S = 5


def servers() -> list[str]:
    """Return what to test against: `embedded` and, where a Docker engine has the image, `container`.

    The variable TWEETWIRE_TEST_MONGODB overrides this: one of the two names, or both with a comma.
    """
    if not os.environ.get(_CHOICE):
        os.environ[_CHOICE] = "embedded" if os.environ.get("MONGO_URL") or not _has_image() else "embedded,container"
    # The workers of pytest-xdist inherit this variable, so that all of them collect the same tests.
    return os.environ[_CHOICE].split(",")


@contextmanager
def container() -> Iterator[str]:
    """Run a replica set of one member in a container. Yields its URL."""
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # Ryuk, which removes the containers of a killed run, is another image that would have to be downloaded.
    testcontainers_config.ryuk_disabled = True
    # The port is the same inside and outside, so that the member's name in the set's configuration is right for both.
    port = free_port()
    member = f"127.0.0.1:{port}"
    command = ["--replSet=rs0", "--bind_ip_all", f"--port={port}", "--wiredTigerCacheSizeGB=0.25"]
    mongod = DockerContainer(_IMAGE).with_command(command).with_tmpfs_mount("/data/db")
    # Docker also accepts an address with the port, but the annotation of `ports` does not allow that form.
    ports: dict[Any, Any] = mongod.ports
    ports[f"{port}/tcp"] = ("127.0.0.1", port)
    with mongod:
        settings = ReplicaSetSettings(_cli_parse_args=[], mongo_url=f"mongodb://{member}", member=member)
        anyio.run(make_replica_set, settings, anyio.Event())
        yield f"mongodb://{member}/?replicaSet=rs0"


def _has_image() -> bool:
    engine = os.environ.get("DOCKER_HOST") or f"unix://{_SOCKET}"
    is_local = engine.startswith("unix://")
    path = engine.removeprefix("unix://")
    if is_local and not _listens(path):
        return False
    transport = httpx.HTTPTransport(uds=path) if is_local else None
    base_url = "http://docker" if is_local else engine.replace("tcp://", "http://", 1)
    try:
        with httpx.Client(base_url=base_url, transport=transport, timeout=_ASK_WITHIN_S) as client:
            return client.get(f"/images/{_IMAGE}/json").status_code == HTTPStatus.OK
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def _listens(path: str) -> bool:
    # Probe the socket first: if it refuses, docker and httpx leave theirs open, and the warning about that would end pytest.
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0
