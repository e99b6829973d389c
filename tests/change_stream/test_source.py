"""The commands that are sent to MongoDB for one collection."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from pydantic_settings import CliApp
from pymongo.asynchronous.database import AsyncDatabase

from change_stream.cluster import Cluster
from change_stream.settings import ChangeStreamSettings
from change_stream.source import CollectionSource

pytestmark = pytest.mark.anyio
Database = AsyncDatabase[dict[str, Any]]
EXCLUDE = ("--exclude", "tweets=secret")


class NewerCluster(Cluster):
    """The tests' mongod as if it were 6.1: it knows `showExpandedEvents`, and has no `disambiguatedPaths` yet."""

    disambiguates_paths = True


@pytest.fixture
async def cluster(mongo_url: str) -> AsyncIterator[Cluster]:
    cluster = NewerCluster.at(mongo_url)
    async with cluster.mongo:
        await cluster.connect(30)
        yield cluster


def source(cluster: Cluster, database: Database, *flags: str) -> CollectionSource:
    return CollectionSource(cluster, database, CliApp.run(ChangeStreamSettings, cli_args=list(flags)), "tweets")


async def test_paths_are_disambiguated_where_fields_are_left_out_and_only_changes_come(cluster: Cluster) -> None:
    database = cluster.mongo["expanded"]
    await database.create_collection("tweets")
    watch = source(cluster, database, *EXCLUDE).watch()
    position = (await watch.open(None)).position
    await database.tweets.create_index("n")
    await database.tweets.insert_one({"_id": 1})
    await watch.open(position)
    with anyio.fail_after(60):
        while not (batch := await watch.more()).changes:
            pass
    await watch.close()
    await cluster.mongo.drop_database("expanded")
    (change,) = batch.changes
    assert change["operationType"] == "insert"
    # Only a stream with showExpandedEvents reports this event.
    assert "collectionUUID" in change


async def test_without_fields_the_source_asks_the_server_for_nothing_more(cluster: Cluster) -> None:
    database = cluster.mongo["expanded"]
    assert source(cluster, database).scope != source(cluster, database, *EXCLUDE).scope
    assert (
        source(cluster, database).scope == CollectionSource(cluster, database, ChangeStreamSettings(), "tweets").scope
    )
