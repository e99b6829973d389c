"""A watch reads every change of a real collection once, from a given position."""

import gc
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from change_stream.errors import HistoryLost, WatchInterrupted, WatchRefused
from change_stream.following import follow
from change_stream.outage import Outage
from change_stream.resume import StreamPosition
from change_stream.watch import ChangeBatch, CollectionWatch
from tweetwire.backoff import Backoff

pytestmark = pytest.mark.anyio
Database = AsyncDatabase[dict[str, Any]]


@pytest.fixture
async def database(mongo_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
        name = f"watch_{abs(hash(request.node.name)) % 10**8}"
        yield client[name]
        await client.drop_database(name)


def watch(database: Database, pipeline: list[dict[str, Any]] | None = None, batch_size: int = 100) -> CollectionWatch:
    return CollectionWatch(
        database,
        "tweets",
        stage={"fullDocument": "updateLookup"},
        pipeline=pipeline or [],
        batch_size=batch_size,
        await_ms=50,
    )


def ids(batch: ChangeBatch) -> list[Any]:
    return [change["documentKey"]["_id"] for change in batch.changes]


async def read(stream: CollectionWatch, first: ChangeBatch, count: int) -> list[Any]:
    """Read until `count` changes have arrived, and check that no more arrive."""
    seen = ids(first)
    with anyio.fail_after(60):
        while len(seen) < count:
            seen += ids(await stream.more())
        seen += ids(await stream.more())
    return seen


async def test_a_new_watch_begins_now(database: Database) -> None:
    await database.tweets.insert_one({"_id": "before"})
    stream = watch(database)
    first = await stream.open(None)
    await database.tweets.insert_many([{"_id": n} for n in range(250)])
    assert await read(stream, first, 250) == list(range(250))
    await stream.close()


async def test_each_batch_has_a_position_to_begin_again_after_it(database: Database) -> None:
    stream = watch(database, batch_size=10)
    start = (await stream.open(None)).position
    await database.tweets.insert_many([{"_id": n} for n in range(30)])
    await stream.open(start)
    with anyio.fail_after(60):
        while not (batch := await stream.more()).changes:
            pass
    stop = ids(batch)[-1]
    again = watch(database)
    assert await read(again, await again.open(batch.position), 29 - stop) == list(range(stop + 1, 30))
    await stream.close()
    await again.close()


async def test_a_time_without_a_token_begins_after_it(database: Database) -> None:
    stream = watch(database)
    first = await stream.open(None)
    await database.tweets.insert_one({"_id": "first"})
    await database.tweets.insert_one({"_id": "second"})
    with anyio.fail_after(60):
        while not first.changes:
            first = await stream.more()
    time = first.changes[0]["clusterTime"]
    assert await read(stream, await stream.open(StreamPosition(time)), 1) == ["second"]
    await stream.close()


async def test_a_quiet_collections_position_moves_on(database: Database) -> None:
    stream = watch(database)
    before = (await stream.open(None)).position
    await database.other.insert_one({})
    with anyio.fail_after(60):
        while (batch := await stream.more()).position.time <= before.time:
            pass
    assert batch.changes == []
    await stream.close()


async def test_a_dropped_and_recreated_collection_continues(database: Database) -> None:
    stream = watch(database)
    first = await stream.open(None)
    await database.tweets.insert_one({"_id": 1})
    await database.tweets.drop()
    await database.tweets.insert_one({"_id": 2})
    operations: list[str] = []
    with anyio.fail_after(60):
        async for batch in follow(stream, first.position, Outage("tweets")):
            operations += [change["operationType"] for change in batch.changes]
            if len(operations) >= 4 and not batch.changes:
                break
    assert operations == ["insert", "drop", "invalidate", "insert"]
    await stream.close()


async def test_a_killed_cursor_is_opened_again_without_loss_or_double(database: Database) -> None:
    stream = watch(database, batch_size=10)
    first = await stream.open(None)
    outage = Outage("tweets", Backoff(first_s=0.001))
    seen: list[Any] = []
    await database.tweets.insert_many([{"_id": n} for n in range(100)])
    with anyio.fail_after(60):
        async for batch in follow(stream, first.position, outage):
            seen += ids(batch)
            if len(seen) >= 100:
                break
            if batch.changes and len(seen) % 30 == 10:
                await database.command({"killCursors": "tweets", "cursors": [stream.cursor_id]})
    assert seen == list(range(100))
    assert outage.count > 0
    await stream.close()


async def test_a_token_that_the_oplog_does_not_know_is_lost_history(database: Database) -> None:
    stream = watch(database)
    batch = await stream.open(None)
    await database.tweets.insert_one({})
    with anyio.fail_after(60):
        while not batch.changes:
            batch = await stream.more()
    data = batch.changes[0]["_id"]["_data"]
    unknown = {"_data": f"{data[:-10]}0000{data[-6:]}"}
    with pytest.raises(HistoryLost), anyio.fail_after(60):
        await read(stream, await stream.open(StreamPosition.behind(unknown)), 1)
    await stream.close()


async def test_a_pipeline_that_mongodb_does_not_know_is_refused(database: Database) -> None:
    with pytest.raises(WatchRefused, match="nonsense"):
        await watch(database, [{"$nonsense": {}}]).open(None)


# pymongo leaves the socket of a connection attempt to the garbage collector if its client is closed during the attempt.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:unclosed:ResourceWarning")
async def test_a_server_that_is_away_interrupts() -> None:
    async with AsyncMongoClient[dict[str, Any]](
        "mongodb://127.0.0.1:1/?replicaSet=rs0", serverSelectionTimeoutMS=50
    ) as client:
        with pytest.raises(WatchInterrupted):
            await watch(client.db).open(None)
    gc.collect()
