"""A snapshot copies the existing documents, and the changes follow without loss or duplicates, also after interruptions."""

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from pymongo import InsertOne, MongoClient
from pymongo.database import Database

from change_stream.convert import document_id
from demo.mongod import ReplicaSet
from tests.change_stream.conftest import Start
from tests.change_stream.programs import Publisher, applied, wait_for
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until
from tweetwire import StoredEvent

pytestmark = pytest.mark.stack


MARKS = {"snapshot_begin", "snapshot_end"}


def operation(event: StoredEvent) -> str:
    return str(json.loads(bytes(event.msg))["op"])


def operations(broker: BrokerProcess) -> Counter[str]:
    """Return how many events about documents there are of each kind."""
    return Counter(one for one in map(operation, events_of(broker.address, "tweets")) if one not in MARKS)


def about_documents(events: list[StoredEvent]) -> list[StoredEvent]:
    return [event for event in events if operation(event) not in MARKS]


def test_stored_documents_come_first_and_changes_follow(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    database.tweets.insert_many([{"_id": f"{n:04}"} for n in range(1050)])
    start("--snapshot", "initial", "--chunk-size", "100")
    until(lambda: operations(broker)["snapshot"] == 1050)
    database.tweets.insert_one({"_id": "new"})
    events = wait_for(broker.address, "tweets", 1053)
    assert [event.id for event in about_documents(events)] == [*(f"{n:04}" for n in range(1050)), "new"]
    assert [event.sequence for event in events] == list(range(1, 1054))
    assert json.loads(bytes(events[-1].msg))["op"] == "insert"


@pytest.mark.parametrize("snapshot", ["initial", "always"])
def test_a_collection_that_is_not_there_yet_is_copied_empty_and_followed(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]], snapshot: str
) -> None:
    publisher = start("--snapshot", snapshot)
    until(lambda: publisher.said("snapshot finished"))
    database.tweets.insert_many([{"_id": n} for n in range(50)])
    wait_for(broker.address, "tweets", 52)
    assert operations(broker) == {"insert": 50}


def test_ids_of_all_types_are_copied_each_once(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    several: list[Any] = [1, 2.5, "a", "$b", "", ObjectId(), {"a": 1}, None, True, Int64(5), Decimal128("7.5"), b"x"]
    several += [MinKey(), MaxKey(), bson.Timestamp(1, 2), float("nan"), bson.datetime_ms.DatetimeMS(-(10**15))]
    database.tweets.insert_many([{"_id": one} for one in several])
    start("--snapshot", "initial", "--chunk-size", "1", "--readers", "3")
    events = about_documents(wait_for(broker.address, "tweets", len(several) + 2))
    assert sorted(event.id for event in events) == sorted(map(document_id, several))


def test_an_idle_collection_is_not_copied_again(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    database.tweets.insert_many([{"_id": n} for n in range(250)])
    first = start("--snapshot", "initial", "--chunk-size", "100")
    until(lambda: first.said("snapshot finished"))
    assert first.terminate() == 0
    start("--snapshot", "initial", "--chunk-size", "100")
    database.tweets.insert_one({"_id": "new"})
    wait_for(broker.address, "tweets", 253)
    assert operations(broker) == {"snapshot": 250, "insert": 1}


def test_always_copies_at_each_start_and_loses_no_change_between(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    database.tweets.insert_many([{"_id": n} for n in range(250)])
    first = start("--snapshot", "always", "--chunk-size", "100")
    until(lambda: first.said("snapshot finished"))
    assert first.terminate() == 0
    database.tweets.delete_one({"_id": 0})
    start("--snapshot", "always", "--chunk-size", "100")
    wait_for(broker.address, "tweets", 504)
    assert operations(broker) == {"snapshot": 499, "delete": 1}


def test_a_collection_with_a_collation_is_copied_in_its_order(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    database.create_collection("tweets", collation={"locale": "en", "strength": 2})
    ids = [f"{letter}{n}" for n in range(60) for letter in "aBcD"]
    database.tweets.insert_many([{"_id": one} for one in ids])
    start("--snapshot", "initial", "--chunk-size", "7")
    events = about_documents(wait_for(broker.address, "tweets", len(ids) + 2))
    assert sorted(event.id for event in events) == sorted(ids)


@pytest.mark.timeout(180)
def test_killed_at_any_moment_under_load_every_document_is_there_once(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    """Documents whose id begins with s never change. Each of them must arrive exactly once, as a snapshot or as an insert."""
    total = 2400
    database.tweets.bulk_write([InsertOne({"_id": f"{n:05}s", "n": 0}) for n in range(0, total, 2)])
    is_done = threading.Event()

    def write() -> None:
        chance = random.Random(5)
        for n in range(1, total, 2):
            database.tweets.insert_one({"_id": f"{n:05}s", "n": 0})
            other = f"{chance.randrange(total):05}x"
            database.tweets.replace_one({"_id": other}, {"n": chance.random()}, upsert=True)
            if chance.random() < 0.3:
                database.tweets.delete_one({"_id": f"{chance.randrange(total):05}x"})
        is_done.set()

    writer = threading.Thread(target=write)
    writer.start()
    chance = random.Random(7)
    publisher = start("--snapshot", "initial", "--chunk-size", "20")
    for _ in range(6):
        time.sleep(chance.uniform(0.05, 0.3))
        publisher.kill()
        publisher.start()
    writer.join()
    assert is_done.is_set()
    expected = {document["_id"]: document for document in database.tweets.find()}

    def is_complete() -> bool:
        return publisher.said("snapshot finished") and applied(events_of(broker.address, "tweets")) == expected

    until(is_complete, 60)
    events = events_of(broker.address, "tweets")
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    came = Counter(event.id for event in about_documents(events) if event.id.endswith("s"))
    assert len(came) == total
    assert set(came.values()) == {1}
    assert operations(broker)["snapshot"] > total / 2
    assert publisher.log_path.read_text().count("snapshot started") > 3


@pytest.mark.timeout(180)
def test_mongodb_and_the_broker_killed_while_copying(tmp_path: Path, broker: BrokerProcess) -> None:
    with ReplicaSet(tmp_path / "mongo") as replica_set, MongoClient[dict[str, Any]](replica_set.url) as mongo:
        tweets = mongo.copied.tweets
        count = 10_000
        tweets.insert_many([{"_id": n, "text": "x" * 200} for n in range(count)])
        flags = ("--map", "tweets=tweets", "--snapshot", "initial", "--chunk-size", "40")
        with Publisher(tmp_path / "log", replica_set.url, broker.address, "copied", *flags) as publisher:
            until(lambda: len(events_of(broker.address, "tweets")) > 0)
            replica_set.kill()
            assert not publisher.said("snapshot finished")
            until(lambda: publisher.said("MongoDB unreachable"), 60)
            replica_set.start()
            tweets.update_one({"_id": 0}, {"$set": {"n": 1}})
            tweets.insert_one({"_id": count})
            broker.kill()
            broker.start()
            until(lambda: publisher.said("snapshot finished"), 60)
            tweets.insert_one({"_id": "last"})
            until(lambda: events_of(broker.address, "tweets")[-1].id == "last")
            events = events_of(broker.address, "tweets")
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert applied(events) == {document_id(document["_id"]): document for document in tweets.find()}
            kinds = Counter((event.id, operation(event) == "update") for event in about_documents(events))
            assert set(kinds.values()) == {1}


@pytest.mark.parametrize("kind", ["capped collection", "view", "timeseries"])
def test_a_collection_that_mongodb_cannot_read_as_of_one_time_is_refused_at_the_start(
    tmp_path: Path, mongo_url: str, broker: BrokerProcess, database: Database[dict[str, Any]], kind: str
) -> None:
    if kind == "view":
        database.create_collection("tweets", viewOn="other", pipeline=[])
    else:
        database.create_collection(
            "tweets",
            **({"timeseries": {"timeField": "at"}} if kind == "timeseries" else {"capped": True, "size": 4096}),
        )
    where = (mongo_url, broker.address, database.name, "--map", "tweets=tweets")
    publisher = Publisher(tmp_path / "publisher.log", *where, "--snapshot", "initial")
    publisher.launch()
    assert publisher.wait() == 2
    assert publisher.said(f"tweets is a {kind}, which MongoDB cannot read at one point in time")
    if kind == "capped collection":
        # The refused start did not begin a snapshot, so a start without a snapshot publishes later changes.
        with Publisher(tmp_path / "publisher.log", *where, "--snapshot", "never"):
            database.tweets.insert_one({"_id": 1})
            wait_for(broker.address, "tweets", 1)
        for flags in (("--snapshot", "always"), ("--snapshot", "initial", "--reset")):
            publisher = Publisher(tmp_path / "publisher.log", *where, *flags)
            publisher.launch()
            assert publisher.wait() == 2
        with Publisher(tmp_path / "publisher.log", *where):
            database.tweets.insert_one({"_id": 2})
            wait_for(broker.address, "tweets", 2)
