"""One broker with the gateway for the tests that need no flags."""

from collections.abc import Iterator

import httpx
import pytest

from tests.broker.gateways.http.serving import HttpBroker, http_broker


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    """A broker that the tests of a module share. Each test uses its own topics."""
    with http_broker(tmp_path_factory.mktemp("http") / "broker") as broker:
        yield broker


@pytest.fixture
def client(shared: HttpBroker) -> Iterator[httpx.Client]:
    """A client of the shared broker."""
    with shared.client() as client:
        yield client
