"""Each tweet is stored and counted once, although tweets arrive twice and writes fail."""

import gc
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect, OperationFailure

from demo.mongod import ReplicaSet
from sse_ingest import store as store_module
from sse_ingest.account import SourceAccount
from sse_ingest.batch import RejectedEntry, WriteBatch, rejected_document
from sse_ingest.store import Store
from tests.sse_ingest.samples import status, user
from tests.sse_ingest.stored import assert_counts_are_exact, batch_of
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.anyio


async def test_documents_have_the_members_that_are_described(store: Store, database: Database[dict[str, Any]]) -> None:
    item = status(
        1, text="so good #a", retweet_count=4, favorite_count=6, user=user(9, followers_count=5, description="hi")
    )
    await store.store_batch(batch_of(SourceAccount(), item))
    tweet = database.tweets.find_one()
    assert tweet is not None
    assert isinstance(tweet.pop("ingested_at"), datetime)
    assert tweet == {
        "_id": "1",
        "text": "so good #a",
        "lang": "en",
        "created_at": datetime(2016, 1, 6, 7, 30, tzinfo=UTC),
        "user": {"id_str": "9", "screen_name": "user9", "name": "User 9", "followers_count": 5, "verified": False},
        "hashtags": [],
        "mentions": [],
        "urls": [],
        "kind": "original",
        "retweet_of": None,
        "favorite_count": 6,
        "retweet_count": 4,
        "sentiment": 0.25,
        "engagement": 2.0,
        "source": "test",
    }
    author = database.users.find_one()
    assert author is not None
    assert (author["_id"], author["description"], author["tweets_seen"]) == ("9", "hi", 1)
    assert author["first_seen"] == author["last_seen"]
    assert database.users_engagements.find_one() == {
        "_id": "9",
        "tweets": 1,
        "engagement_sum": 2.0,
        "engagement_mean": 2.0,
        "last": [2.0],
    }


async def test_the_same_tweet_again_changes_nothing_and_makes_no_change_event(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    account = SourceAccount(read=4)
    items = [status(1), status(2, author=2)]
    assert len(await store.store_batch(batch_of(account, *items))) == 2
    before = [list(database[name].find()) for name in ("tweets", "users", "users_engagements")]
    with database.watch() as changes:
        assert await store.store_batch(batch_of(account, status(1, favorite_count=99), items[1])) == []
        database.marker.insert_one({"_id": 1})
        first = next(changes)
    assert first["ns"]["coll"] == "marker"
    assert [list(database[name].find()) for name in ("tweets", "users", "users_engagements")] == before
    assert (account.stored, account.already_there, account.in_flight) == (2, 2, 0)


async def test_a_tweet_twice_in_a_batch_counts_once(store: Store, database: Database[dict[str, Any]]) -> None:
    account = SourceAccount(read=3)
    await store.store_batch(batch_of(account, status(1), status(1), status(2)))
    assert (account.stored, account.already_there) == (2, 1)
    assert_counts_are_exact(database)


async def test_users_gather_their_tweets_over_batches(store: Store, database: Database[dict[str, Any]]) -> None:
    for number in range(1, 26):
        item = status(number, favorite_count=number, user=user(1, followers_count=1, description=f"at {number}"))
        await store.store_batch(batch_of(SourceAccount(), item, status(100 + number, author=2)))
    assert_counts_are_exact(database)
    engagement = database.users_engagements.find_one({"_id": "1"})
    assert engagement is not None
    assert engagement["last"] == [float(number) for number in range(6, 26)]
    assert engagement["engagement_mean"] == pytest.approx(13.0)
    author = database.users.find_one({"_id": "1"})
    assert author is not None
    assert author["description"] == "at 25"
    assert author["first_seen"] < author["last_seen"]


async def test_two_ingesters_with_the_same_tweets_at_once_count_each_once(
    store: Store, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    other = await Store.open(mongo_url, database.name, 10.0)
    accounts = [SourceAccount(), SourceAccount()]

    async def settle(one: Store, account: SourceAccount) -> None:
        for start in range(1, 200, 20):
            items = [status(number, author=number % 7 + 1) for number in range(start, start + 20)]
            await one.store_batch(batch_of(account, *items))

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(settle, store, accounts[0])
            tasks.start_soon(settle, other, accounts[1])
    finally:
        await other.aclose()
    assert database.tweets.count_documents({}) == 200
    assert accounts[0].stored + accounts[1].stored == 200
    assert accounts[0].already_there + accounts[1].already_there == 200
    assert_counts_are_exact(database)


async def test_a_batch_that_conflicts_repeatedly_is_written_in_parts(
    store: Store, database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "CONFLICTS_MAX", 2)
    account = SourceAccount(read=6)
    await store.store_batch(batch_of(account, status(1, author=1)))
    with database.client.start_session() as session, anyio.fail_after(30):
        session.start_transaction()
        database.users.update_one({"_id": "1"}, {"$set": {"name": "held"}}, session=session)
        async with anyio.create_task_group() as tasks:
            authors = {2: 2, 3: 3, 4: 4, 5: 5, 6: 1}
            batch = batch_of(account, *[status(number, author=author) for number, author in authors.items()])
            tasks.start_soon(store.store_batch, batch)
            while account.stored < 5:
                await anyio.sleep(0.01)
            session.abort_transaction()
    assert (account.stored, account.in_flight) == (6, 0)
    assert_counts_are_exact(database)


async def test_a_batch_that_exceeds_mongodbs_limits_is_written_in_parts(
    store: Store, database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = store._write_batch

    async def write_little(batch: WriteBatch, *arguments: Any) -> None:
        sizes.append(len(batch))
        if len(batch) > 2:
            # The error of MongoDB from version 6.2 on.
            raise OperationFailure("transaction is too large and will not fit in the storage engine cache", 388)
        await write(batch, *arguments)

    monkeypatch.setattr(store, "_write_batch", write_little)
    account = SourceAccount(read=6)
    new = await store.store_batch(batch_of(account, *map(status, range(1, 7))))
    assert sizes == [6, 3, 1, 2, 3, 1, 2]
    assert (len(new), account.stored, account.in_flight) == (6, 6, 0)
    assert_counts_are_exact(database)


async def test_a_settled_batch_is_freed_without_a_garbage_collection(store: Store) -> None:
    gc.collect()
    gc.disable()
    try:
        await store.store_batch(batch_of(SourceAccount(), status(1), status(2)))
        assert [one for one in gc.get_objects() if type(one) is WriteBatch] == []
    finally:
        gc.enable()


def test_a_batch_of_large_documents_is_full_before_mongodbs_cache_is() -> None:
    large: dict[str, Any] = {"text": "x" * 50_000, "user": user(1, description="d" * 50_000)}
    batch = batch_of(SourceAccount(), *[status(number, **large) for number in range(1, 80)])
    assert not batch.is_full
    assert batch_of(SourceAccount(), *[status(number, **large) for number in range(1, 90)]).is_full
    for number in range(200):
        batch.add_entry(RejectedEntry(rejected_document("test", "garbage" * 1000, "no JSON"), SourceAccount(), number))
    assert batch.is_full


class Failing:
    """Makes one step of a transaction fail once, before or after MongoDB has done it."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, step: str, *, before: bool) -> None:
        self.times = 0
        original = getattr(store, step)

        async def fail(*arguments: Any, **named: Any) -> Any:
            self.times += 1
            if before and self.times == 1:
                raise AutoReconnect("connection closed")
            result = await original(*arguments, **named)
            if not before and self.times == 1:
                raise AutoReconnect("connection closed")
            return result

        monkeypatch.setattr(store, step, fail)


@pytest.mark.parametrize("step", ["_transaction", "_insert_tweets", "_count_users", "_insert_rejected"])
@pytest.mark.parametrize("before", [True, False])
async def test_a_connection_lost_at_any_step_loses_and_doubles_nothing(
    store: Store, database: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    # A failure after the commit step means that the commit succeeded but its reply was lost.
    failing = Failing(store, monkeypatch, step, before=before)
    account = SourceAccount(read=4)
    batch = batch_of(account, status(1), status(2), status(3, author=2))
    batch.add_entry(RejectedEntry(rejected_document("test", "garbage", "no JSON"), account))
    assert len(await store.store_batch(batch)) == 3
    assert failing.times == 2
    assert (account.stored, account.rejected, account.in_flight) == (3, 1, 0)
    assert database.rejected_tweets.count_documents({}) == 1
    assert_counts_are_exact(database)


@pytest.fixture(scope="module")
def failing_mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoClient[dict[str, Any]]]:
    """A client of a replica set that allows the test command `failCommand`."""
    arguments = ("--setParameter", "enableTestCommands=1")
    with (
        ReplicaSet(tmp_path_factory.mktemp("failing"), arguments=arguments) as mongod,
        MongoClient[dict[str, Any]](mongod.url, tz_aware=True) as client,
    ):
        yield client


@pytest.mark.stack
@pytest.mark.timeout(120)
@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize(
    "failure",
    [
        {"closeConnection": True},
        {"errorCode": 91, "errorLabels": ["RetryableWriteError"]},
        {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}},
    ],
)
async def test_a_commit_that_fails_repeatedly_is_sent_again_and_nothing_waits_for_its_transaction(
    failing_mongod: MongoClient[dict[str, Any]], failure: dict[str, Any], times: int
) -> None:
    host, port = failing_mongod.address or ("", 0)
    name = f"ingest_{times}_{next(iter(failure))}"
    store = await Store.open(f"mongodb://{host}:{port}/?replicaSet=rs0&heartbeatFrequencyMS=500", name, 10.0)
    account = SourceAccount(read=4)
    try:
        await store.store_batch(batch_of(account, status(1)))
        failing_mongod.admin.command(
            "configureFailPoint",
            "failCommand",
            mode={"times": times},
            data={"failCommands": ["commitTransaction"], **failure},
        )
        with anyio.fail_after(25):
            await store.store_batch(batch_of(account, status(1), status(2), status(3, author=2)))
    finally:
        failing_mongod.admin.command("configureFailPoint", "failCommand", mode="off")
        await store.aclose()
    assert (account.stored, account.already_there, account.in_flight) == (3, 1, 0)
    assert_counts_are_exact(failing_mongod[name])


@pytest.mark.stack
@pytest.mark.timeout(120)
async def test_a_batch_that_is_cancelled_after_a_failed_commit_leaves_nothing_locked(
    failing_mongod: MongoClient[dict[str, Any]],
) -> None:
    host, port = failing_mongod.address or ("", 0)
    store = await Store.open(f"mongodb://{host}:{port}/?replicaSet=rs0", "ingest_cancelled", 10.0)
    data = {"failCommands": ["commitTransaction"], "closeConnection": True}
    failing_mongod.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=data)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.store_batch, batch_of(SourceAccount(), status(1)))
            while store.outage is None:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        failing_mongod.admin.command("configureFailPoint", "failCommand", mode="off")
        with anyio.fail_after(25):
            await store.store_batch(batch_of(account := SourceAccount(read=1), status(1)))
    finally:
        failing_mongod.admin.command("configureFailPoint", "failCommand", mode="off")
        await store.aclose()
    assert account.stored == 1


async def test_a_document_that_mongodb_refuses_does_not_hurt_its_batch(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    database.command("collMod", "tweets", validator={"text": {"$not": {"$regex": "forbidden"}}})
    account = SourceAccount(read=50)
    items = [status(number, author=number % 5 + 1) for number in range(1, 50)]
    items.insert(20, status(99, text="a forbidden word"))
    assert len(await store.store_batch(batch_of(account, *items))) == 49
    assert (account.stored, account.rejected, account.in_flight) == (49, 1, 0)
    (rejected,) = database.rejected_tweets.find()
    assert "validation" in rejected["error"]
    assert rejected["raw"] == "99 a forbidden word"
    assert rejected["source"] == "test"
    assert_counts_are_exact(database)


async def test_a_user_whose_update_mongodb_refuses_does_not_hurt_the_others(
    store: Store, database: Database[dict[str, Any]]
) -> None:
    account = SourceAccount(read=30)
    await store.store_batch(batch_of(account, *(status(number, author=number) for number in range(1, 11))))
    database.command("collMod", "users", validator={"description": {"$ne": "forbidden"}})
    items = [status(100 + number, author=number) for number in range(1, 20)]
    items.append(status(99, user=user(3, description="forbidden")))
    assert len(await store.store_batch(batch_of(account, *items))) == 19
    assert (account.stored, account.rejected, account.in_flight) == (29, 1, 0)
    assert_counts_are_exact(database)


async def test_a_transaction_that_a_killed_ingester_left_open_is_ended(
    mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    database.create_collection("tweets")
    script = (
        "import os, sys; from pymongo import MongoClient\n"
        "client = MongoClient(sys.argv[1], appname=f'tweetwire sse_ingest {sys.argv[2]}'); session = client.start_session()\n"
        "session.start_transaction(); client[sys.argv[2]].tweets.insert_one({'_id': '1'}, session=session); os._exit(9)"
    )
    await anyio.run_process([sys.executable, "-c", script, mongo_url, database.name], check=False)
    with anyio.fail_after(60):
        store = await Store.open(mongo_url, database.name, 10.0)
        try:
            assert len(await store.store_batch(batch_of(SourceAccount(), status(1)))) == 1
        finally:
            await store.aclose()


async def test_a_cancelled_batch_leaves_nothing_locked(store: Store, database: Database[dict[str, Any]]) -> None:
    original = store._count_users

    async def cancel(*arguments: Any) -> None:
        await original(*arguments)
        scope.cancel()
        await anyio.sleep_forever()

    store._count_users = cancel  # type: ignore[method-assign, assignment]
    with anyio.CancelScope() as scope:
        await store.store_batch(batch_of(SourceAccount(), status(1)))
    store._count_users = original  # type: ignore[method-assign]
    assert database.tweets.count_documents({}) == 0
    with anyio.fail_after(60):
        assert len(await store.store_batch(batch_of(SourceAccount(), status(1)))) == 1


async def test_hashtags_are_counted_from_stored_tweets(store: Store) -> None:
    def tagged(number: int, *tags: str) -> dict[str, Any]:
        return status(number, entities={"hashtags": [{"text": tag} for tag in tags]})

    before = datetime.now(UTC)
    await store.store_batch(batch_of(SourceAccount(), tagged(1, "a", "b"), tagged(2, "a"), tagged(2, "a")))
    assert await store.hashtags(datetime.now(UTC) + timedelta(seconds=1)) == {"a": 2, "b": 1}
    assert await store.hashtags(before - timedelta(seconds=1)) == {}


async def test_an_invalid_address_is_reported_in_one_sentence() -> None:
    for address in ("http://somewhere", "mongodb://someone:pass/word@host:x"):
        with pytest.raises(StartError, match="is not a MongoDB address") as raised:
            await Store.open(address, "db", 0.3)
        assert "word" not in str(raised.value).replace("password", "")
