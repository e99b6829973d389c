"""Real servers for the tests, each started once in a session."""

import os
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import HealthCheck, settings

from demo.mongod import mongodb
from tests.support.certificates import make_certificates
from tests.support.mongodb import container, servers
from tests.support.paths import ROOT
from tests.support.processes import BrokerProcess

# The time to draw inputs depends on the machine, not on the code.
settings.register_profile("tweetwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tweetwire")


# The slowest paths below tests/, the slowest first. All other files come last.
LONGEST_FIRST = (
    "demo/test_demo.py",
    "spark",
    "sse_ingest",
    "change_stream",
    "bridge",
    "dashboard",
    "subscriber",
    "demo",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first, so that the workers end at about the same time."""
    ranks = {ROOT / "tests" / path: rank for rank, path in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: min(ranks.get(path, len(ranks)) for path in (item.path, *item.path.parents)))


@pytest.fixture(scope="session", autouse=True)
def _config_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Use an empty folder for saved brokers, so that tests neither read nor change those of the user."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A real broker with its own folder and a free port."""
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A real broker shared by the tests of a file; each test uses a separate topic."""
    folder = tmp_path_factory.mktemp("data")
    with BrokerProcess(folder / "broker") as process:
        yield process
    rmtree(folder)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of the test, without its parameters."""
    return str(request.node.name).partition("[")[0]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a test authority, and with certificates for a server and a client."""
    return make_certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Run async tests on the event loop of the programs."""
    return "asyncio", {"use_uvloop": True}


def pytest_configure() -> None:
    """Find the available MongoDB servers once, before the workers start."""
    servers()
    # The tests start hundreds of programs. Without bytecode on the disk, each spends a quarter of its start on compiling.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of MongoDB against each of the servers."""
    if "mongo_url" in metafunc.fixturenames and servers() != ["embedded"]:
        metafunc.parametrize("mongo_url", servers(), indirect=True, scope="session")


@pytest.fixture(scope="session")
def mongo_url(request: pytest.FixtureRequest) -> str:
    """A real replica set of one member; each test uses a separate database."""
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
