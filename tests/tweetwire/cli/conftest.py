"""A client and a command line, both for the broker of a test's file."""

from collections.abc import Iterator

import pytest

from tests.support.commands import Tweetwire
from tests.support.processes import BrokerProcess
from tweetwire import SyncClient


@pytest.fixture
def tweetwire(shared_broker: BrokerProcess) -> Tweetwire:
    """The command line, for the broker that the tests of a file share."""
    return Tweetwire(shared_broker)


@pytest.fixture
def shared_client(shared_broker: BrokerProcess) -> Iterator[SyncClient]:
    """A client of the broker that the tests of a file share."""
    with SyncClient(shared_broker.address, name="test", reconnect_s=0) as client:
        yield client
