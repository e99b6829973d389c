"""Real servers for tests, one each a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from demo.mongod import mongodb
from tests.processes import BrokerProcess

# How fast inputs are drawn tells of the machine and not of the code.
settings.register_profile("tweetwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tweetwire")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that the workers end at about the same time."""
    items.sort(key=lambda item: not {"stack", "spark"}.intersection(item.path.parts))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A real broker on a folder and a free port of its own."""
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Async tests run where the programs do."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def mongo_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real replica set of one member; each test takes a database of its own."""
    with mongodb(tmp_path_factory.mktemp("mongod")) as url:
        yield url
