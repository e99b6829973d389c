"""A separate database for each test, and publishers of its changes."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.change_stream.programs import Publisher
from tests.support.processes import BrokerProcess

Start = Callable[..., Publisher]


@pytest.fixture
def database(mongo_url: str, request: pytest.FixtureRequest) -> Iterator[Database[dict[str, Any]]]:
    name = f"test_{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}"
    with MongoClient[dict[str, Any]](mongo_url) as client:
        yield client[name]
        client.drop_database(name)


@pytest.fixture
def start(tmp_path: Path, mongo_url: str, broker: BrokerProcess, database: Database[dict[str, Any]]) -> Iterator[Start]:
    """Start a publisher of the collection tweets and wait until it is ready."""
    running: list[Publisher] = []

    def start(*flags: str) -> Publisher:
        flags = ("--map", "tweets=tweets", *flags)
        publisher = Publisher(tmp_path / "publisher.log", mongo_url, broker.address, database.name, *flags)
        running.append(publisher)
        publisher.start()
        return publisher

    yield start
    for publisher in running:
        publisher.kill()
