"""The stores under test: memory and a folder by the library, and a real server that speaks S3."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from broker.tiers.location import open_store
from broker.tiers.store import Store
from tests.support.s3_servers import BUCKET, S3Server

_PREFIXES = count()


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that the module's tests share; each uses a separate prefix."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """The URL of an empty folder."""
    return f"file://{tmp_path}/bucket"


@pytest.fixture(params=["file", "s3"])
def tier_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty place, with the variables by which programs reach it."""
    if request.param == "file":
        return f"file://{tmp_path}/bucket"
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/p{next(_PREFIXES)}"


@pytest.fixture(params=["memory", "file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store of each kind."""
    if request.param == "memory":
        return Store(MemoryStore(), "memory")
    if request.param == "file":
        return open_store(f"file://{tmp_path}/bucket")
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return open_store(f"s3://{BUCKET}/p{next(_PREFIXES)}")
