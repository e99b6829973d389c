"""One broker for all tests of a file that can share it, each on a topic of its own."""

from collections.abc import Iterator

import pytest

from tests.processes import BrokerProcess


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A real broker for the tests of a file."""
    with BrokerProcess(tmp_path_factory.mktemp("data") / "broker") as process:
        yield process


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of the test."""
    return str(request.node.name).partition("[")[0]
