"""Real servers for tests, one each a session."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from demo.mongod import mongodb
from tests.certificates import make_certificates
from tests.mongodb import container, servers
from tests.processes import BrokerProcess

# How fast inputs are drawn tells of the machine and not of the code.
settings.register_profile("tweetwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tweetwire")


ROOT = Path(__file__).parent
# The folders whose files take longest, the longest first; of the others, many short files are left for the end.
LONGEST_FIRST = ("stack", "spark", "sse_ingest", "change_stream", "dashboard", "subscriber", "demo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that the workers end at about the same time."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.relative_to(ROOT).parts[0], len(ranks)))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A real broker on a folder and a free port of its own."""
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an authority of our own, and of certificates for a server and a client."""
    return make_certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Async tests run where the programs do."""
    return "asyncio", {"use_uvloop": True}


def pytest_configure() -> None:
    """Look once, and before the workers start, what MongoDB can be had."""
    servers()
    # Hundreds of our programs are started; without their bytecode on the disk each compiles itself, a quarter of its start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of MongoDB against each of the servers."""
    if "mongo_url" in metafunc.fixturenames and servers() != ["embedded"]:
        metafunc.parametrize("mongo_url", servers(), indirect=True, scope="session")


@pytest.fixture(scope="session")
def mongo_url(request: pytest.FixtureRequest) -> str:
    """A real replica set of one member; each test takes a database of its own."""
    url: str = request.getfixturevalue(f"{getattr(request, 'param', 'embedded')}_mongo_url")
    return url


@pytest.fixture(scope="session")
def embedded_mongo_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The embedded MongoDB, or the one that MONGO_URL names."""
    with mongodb(tmp_path_factory.mktemp("mongod")) as url:
        yield url


@pytest.fixture(scope="session")
def container_mongo_url() -> Iterator[str]:
    """A MongoDB in a container."""
    with container() as url:
        yield url
