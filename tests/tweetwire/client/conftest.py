"""The fixtures of the tests that run with both clients."""

import pytest

from tests.tweetwire.client.either_client import CLIENTS, Opener


@pytest.fixture(params=list(CLIENTS))
def opened(request: pytest.FixtureRequest) -> Opener:
    """Open a client of either kind."""
    return CLIENTS[request.param]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A separate topic for each test and client."""
    return str(request.node.name).replace("[", ".").replace("]", "")[-100:].lstrip(".")
