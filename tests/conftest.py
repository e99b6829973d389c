"""Real servers for tests, one each a session."""

from collections.abc import Iterator

import pytest

from demo.mongod import mongodb


@pytest.fixture(scope="session")
def mongo_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real replica set of one member; each test takes a database of its own."""
    with mongodb(tmp_path_factory.mktemp("mongod")) as url:
        yield url
