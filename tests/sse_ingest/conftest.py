"""A separate database for each test, and the ingester's connection to it."""

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from sse_ingest.store import Store


@pytest.fixture
def database(mongo_url: str) -> Iterator[Database[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongo_url, tz_aware=True) as client:
        name = f"ingest_{uuid.uuid4().hex[:12]}"
        yield client[name]
        client.drop_database(name)


@pytest.fixture
async def store(mongo_url: str, database: Database[dict[str, Any]]) -> AsyncIterator[Store]:
    store = await Store.open(mongo_url, database.name, 10.0)
    yield store
    await store.aclose()
