"""The MongoDBs that tests run against: the embedded one, and a container of the image that docker-compose.yml names."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio

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

    TWEETWIRE_TEST_MONGODB, one of them or both with a comma, chooses instead of the engine.
    """
    if not os.environ.get(_CHOICE):
        os.environ[_CHOICE] = "embedded" if os.environ.get("MONGO_URL") or not _has_image() else "embedded,container"
    # The workers of pytest-xdist inherit what was found, and so all have the same tests.
    return os.environ[_CHOICE].split(",")


@contextmanager
def container() -> Iterator[str]:
    """Run a replica set of one member in a container; gives its URL."""
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # What removes the containers of a killed run is an image of its own, which would have to be fetched.
    testcontainers_config.ryuk_disabled = True
    # The port is the same inside and outside, so that the member's name in the set's configuration is right for both.
    port = free_port()
    member = f"127.0.0.1:{port}"
    command = ["--replSet=rs0", "--bind_ip_all", f"--port={port}", "--wiredTigerCacheSizeGB=0.25"]
    mongod = DockerContainer(_IMAGE, command=command).with_tmpfs_mount("/data/db")
    mongod.ports[f"{port}/tcp"] = ("127.0.0.1", port)
    with mongod:
        settings = ReplicaSetSettings(_cli_parse_args=[], mongo_url=f"mongodb://{member}", member=member)
        anyio.run(make_replica_set, settings, anyio.Event())
        yield f"mongodb://{member}/?replicaSet=rs0"


def _has_image() -> bool:
    if not os.environ.get("DOCKER_HOST") and not _SOCKET.exists():
        return False
    import docker

    try:
        with closing(docker.from_env(timeout=_ASK_WITHIN_S)) as engine:
            engine.images.get(_IMAGE)
    except docker.errors.DockerException:
        return False
    return True
