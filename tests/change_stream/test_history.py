"""If MongoDB's oplog no longer has a topic's position, a policy decides, and a gap event names both bounds."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from change_stream.cluster import Cluster
from change_stream.settings import ChangeStreamSettings
from change_stream.source import CollectionSource
from demo.mongod import ReplicaSet
from tests.change_stream.programs import Publisher, wait_for
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """A replica set with an oplog of one MiB, and a checkpoint every second, after which MongoDB may drop older entries."""
    with ReplicaSet(tmp_path_factory.mktemp("forgetful"), oplog_mb=1, arguments=("--syncdelay", "1")) as running:
        yield running


@pytest.fixture
def mongo(forgetful: ReplicaSet) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](forgetful.url) as client:
        yield client


@pytest.fixture
def left(
    tmp_path: Path, forgetful: ReplicaSet, mongo: MongoClient[dict[str, Any]], broker: BrokerProcess
) -> Iterator[Callable[..., Publisher]]:
    """Publish one change, and let MongoDB drop its position from the oplog. Yields a function that starts the publisher."""
    database = mongo[f"db_{tmp_path.name[-30:]}"]
    started: list[Publisher] = []

    def publisher(*flags: str) -> Publisher:
        arguments = ("--map", "tweets=tweets", *flags)
        started.append(Publisher(tmp_path / "log", forgetful.url, broker.address, database.name, *arguments))
        return started[-1]

    first = publisher()
    first.start()
    database.tweets.insert_one({"_id": "before"})
    wait_for(broker.address, "tweets", 1)
    assert first.terminate() == 0
    database.tweets.insert_one({"_id": "lost"})
    _forget(database)
    yield publisher
    for one in started:
        one.kill()
    mongo.drop_database(database.name)


def _forget(database: Database[dict[str, Any]]) -> None:
    written = database.client.admin.command("ping")["operationTime"]

    def is_forgotten() -> bool:
        database.foreign.insert_many([{"text": "x" * 100_000} for _ in range(20)])
        oldest = database.client.local["oplog.rs"].find_one(sort=[("$natural", 1)])
        assert oldest is not None
        return bool(oldest["ts"] > written)

    until(is_forgotten, 60)


def changes(broker: BrokerProcess) -> list[Any]:
    return [json.loads(bytes(event.msg)) for event in events_of(broker.address, "tweets")]


def test_without_a_policy_it_says_so_and_ends(left: Callable[..., Publisher], broker: BrokerProcess) -> None:
    publisher = left()
    publisher.launch()
    assert publisher.wait() == 2
    assert publisher.said("history of tweets no longer reaches back to")
    assert publisher.said("--on-history-lost resnapshot, from_time or now")
    assert len(changes(broker)) == 1


@pytest.mark.parametrize("flags", [("--on-history-lost", "resnapshot"), ("--snapshot", "when_needed")])
def test_a_new_snapshot(left: Callable[..., Publisher], broker: BrokerProcess, flags: tuple[str, ...]) -> None:
    left(*flags).start()
    wait_for(broker.address, "tweets", 6)
    first, gap, begin, *copied, end = changes(broker)
    assert [(mark["op"], mark["copy"], mark["documents"]) for mark in (begin, end)] == [
        ("snapshot_begin", 3, 2),
        ("snapshot_end", 3, 2),
    ]
    assert first["op"] == "insert"
    assert gap["op"] == "gap"
    assert first["at"] // 1000 * 1000 <= gap["gap"]["from"] <= gap["gap"]["to"]
    assert [(change["op"], change["document"]["_id"]) for change in copied] == [
        ("snapshot", "before"),
        ("snapshot", "lost"),
    ]


@pytest.mark.anyio
async def test_the_oldest_change_of_a_forgetful_mongodb_is_found_to_the_second(
    left: Callable[..., Publisher], forgetful: ReplicaSet
) -> None:
    cluster = Cluster.at(forgetful.url)
    async with cluster.mongo:
        await cluster.connect(30)
        true = await cluster.oldest()
        assert true is not None
        cluster.oldest = _unknown  # type: ignore[method-assign]
        source = CollectionSource(cluster, cluster.mongo["oldest"], ChangeStreamSettings(), "tweets")
        assert true.time <= (await source.oldest()).time <= true.time + 1


async def _unknown() -> None:
    """Answer as for a user who may not read the oplog."""


@pytest.mark.parametrize("policy", ["now", "from_time"])
def test_going_on_with_a_gap(
    left: Callable[..., Publisher], mongo: MongoClient[dict[str, Any]], broker: BrokerProcess, policy: str
) -> None:
    publisher = left("--on-history-lost", policy)
    publisher.start()
    wait_for(broker.address, "tweets", 2)
    mongo[publisher.words[6]].tweets.insert_one({"_id": "after"})
    events = wait_for(broker.address, "tweets", 3)
    first, gap, after = changes(broker)
    assert (first["op"], gap["op"], after["op"]) == ("insert", "gap", "insert")
    assert first["at"] // 1000 * 1000 <= gap["gap"]["from"] <= gap["gap"]["to"] <= after["at"]
    assert [event.sequence for event in events] == [1, 2, 3]


def test_a_copy_that_was_left_continues_behind_the_gap(
    tmp_path: Path, forgetful: ReplicaSet, mongo: MongoClient[dict[str, Any]], broker: BrokerProcess
) -> None:
    database = mongo["left_copy"]
    database.tweets.insert_many([{"_id": n} for n in range(1500)])
    flags = ("--map", "tweets=tweets", "--snapshot", "initial", "--chunk-size", "5", "--on-history-lost", "now")
    with Publisher(tmp_path / "log", forgetful.url, broker.address, database.name, *flags) as publisher:
        wait_for(broker.address, "tweets", 20)
        publisher.kill()
        assert not publisher.said("snapshot finished")
        _forget(database)
        publisher.start()
        events = wait_for(broker.address, "tweets", 1503, 60)
    operations = Counter(change["op"] for change in changes(broker))
    assert operations == {"snapshot": 1500, "gap": 1, "snapshot_begin": 1, "snapshot_end": 1}
    assert [event.sequence for event in events] == list(range(1, 1504))
    assert [event.id for event in events if event.id != "tweets"] == [str(n) for n in range(1500)]
    mongo.drop_database(database.name)


@pytest.fixture
def renamed(
    tmp_path: Path, mongo_url: str, broker: BrokerProcess, database: Database[dict[str, Any]]
) -> Iterator[Callable[..., Publisher]]:
    """Yield a function that starts a publisher of the collection tweets."""
    started: list[Publisher] = []

    def publisher(*flags: str) -> Publisher:
        arguments = ("--map", "tweets=tweets", *flags)
        started.append(Publisher(tmp_path / "log", mongo_url, broker.address, database.name, *arguments))
        return started[-1]

    yield publisher
    for one in started:
        one.kill()


def rename_to_tweets(database: Database[dict[str, Any]]) -> None:
    database.staged.insert_many([{"_id": "brought"}, {"_id": "too"}])
    database.staged.rename("tweets", dropTarget=True)
    database.tweets.insert_one({"_id": "after"})


@pytest.mark.parametrize(
    ("policy", "operations"),
    [
        ("resnapshot", ["insert", "rename", "gap", "snapshot_begin", *["snapshot"] * 3, "delete", "snapshot_end"]),
        ("from_time", ["insert", "rename", "gap", "insert"]),
    ],
)
def test_a_collection_that_gets_the_watched_name_is_lost_history(
    renamed: Callable[..., Publisher],
    broker: BrokerProcess,
    database: Database[dict[str, Any]],
    policy: str,
    operations: list[str],
) -> None:
    publisher = renamed("--on-history-lost", policy)
    publisher.start()
    database.tweets.insert_one({"_id": "before"})
    wait_for(broker.address, "tweets", 1)
    rename_to_tweets(database)
    events = wait_for(broker.address, "tweets", len(operations))
    told = changes(broker)
    assert [change["op"] for change in told] == operations
    assert (told[1]["from"], told[1]["to"], told[1]["collection"]) == ("staged", "tweets", "tweets")
    assert (
        told[2]["gap"]["reason"]
        == "the collection staged was renamed to tweets, so the topic does not have its documents"
    )
    assert {change["document"]["_id"] for change in told[3:] if change["document"]} >= {"after"}
    assert [change["document_key"] for change in told if change["op"] == "delete"] == [{"_id": "before"}] * (
        policy == "resnapshot"
    )
    assert [event.sequence for event in events] == list(range(1, len(operations) + 1))


def test_a_rename_to_the_watched_name_ends_it_until_a_policy_is_chosen(
    renamed: Callable[..., Publisher], broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    publisher = renamed()
    publisher.start()
    database.tweets.insert_one({"_id": "before"})
    wait_for(broker.address, "tweets", 1)
    rename_to_tweets(database)
    assert publisher.wait() == 2
    assert publisher.said(
        "the collection staged was renamed to tweets, so the topic does not have its documents; choose"
    )
    # The publisher ends again after each start, and the topic has the rename only once.
    publisher.launch()
    assert publisher.wait() == 2
    assert publisher.said("another collection was renamed to tweets")
    assert [change["op"] for change in changes(broker)] == ["insert", "rename"]
    renamed("--on-history-lost", "resnapshot").start()
    wait_for(broker.address, "tweets", 9)
    assert Counter(change["op"] for change in changes(broker)[2:]) == {
        "gap": 1,
        "snapshot_begin": 1,
        "snapshot": 3,
        "delete": 1,
        "snapshot_end": 1,
    }


def test_a_collection_that_loses_the_watched_name_is_not_a_lost_history(
    renamed: Callable[..., Publisher], broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    renamed().start()
    database.tweets.insert_one({"_id": "before"})
    wait_for(broker.address, "tweets", 1)
    database.tweets.rename("old")
    database.tweets.insert_one({"_id": "after"})
    wait_for(broker.address, "tweets", 4)
    told = changes(broker)
    assert [change["op"] for change in told] == ["insert", "rename", "invalidate", "insert"]
    assert (told[1]["from"], told[1]["to"]) == ("tweets", "old")
