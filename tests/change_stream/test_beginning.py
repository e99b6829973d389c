"""The record with which a publisher begins: the topic's own, a first one with a gap event, or one of another cluster."""

import json
import shutil
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from change_stream.cluster import Cluster
from change_stream.settings import ChangeStreamSettings
from change_stream.source import CollectionSource
from tests.change_stream.conftest import Start
from tests.change_stream.programs import wait_for
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until
from tweetwire import SyncClient

Mongo = Database[dict[str, Any]]


def replace_cluster(broker: BrokerProcess, database: Mongo, name: str) -> None:
    """Write the stored position again, as one of the cluster `name`."""
    producer = f"cdc.{database.name}.tweets"
    with SyncClient(broker.address, name="test") as client:
        position = client.last("tweets", producer)
        assert position is not None
        version, _, rest = str(position.checkpoint).split("/", 2)
        client.checkpoint("tweets", producer, f"{version}/{name}/{rest}", epoch=position.epoch)


@pytest.mark.stack
def test_a_broker_that_lost_its_data_gets_a_gap_event(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    publisher = start("--heartbeat", "100ms")
    database.tweets.insert_one({"_id": 1})
    wait_for(broker.address, "tweets", 1)
    broker.kill()
    shutil.rmtree(broker.data_dir)
    broker.start()
    until(lambda: publisher.said("the broker lost the position of this topic"))
    database.tweets.insert_one({"_id": 2})
    gap, inserted = wait_for(broker.address, "tweets", 2)
    message = json.loads(bytes(gap.msg))
    assert (message["op"], message["gap"]["reason"]) == ("gap", "the broker lost the position of this topic")
    assert message["gap"]["from"] <= message["gap"]["to"]
    assert (inserted.id, inserted.sequence) == ("2", 2)


@pytest.mark.stack
def test_a_grant_of_the_right_to_read_the_id_keeps_the_topic(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    publisher = start()
    assert publisher.terminate() == 0
    replace_cluster(broker, database, "set-rs0")
    database.tweets.insert_one({"_id": 1})
    publisher.start()
    wait_for(broker.address, "tweets", 1)


@pytest.mark.stack
def test_the_position_of_another_cluster_is_adopted_if_asked_for(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    publisher = start()
    assert publisher.terminate() == 0
    replace_cluster(broker, database, "0123456789abcdef01234567")
    database.tweets.insert_one({"_id": 1})
    publisher.launch()
    assert publisher.wait() == 2
    assert publisher.said("give --adopt if this is a copy of it")
    assert start("--adopt").terminate() == 0
    wait_for(broker.address, "tweets", 1)
    start()
    database.tweets.insert_one({"_id": 2})
    wait_for(broker.address, "tweets", 2)
    assert [event.sequence for event in events_of(broker.address, "tweets")] == [1, 2]


class Restricted(Cluster):
    """A cluster whose user may not read the oplog."""

    async def oldest(self) -> None:
        return None


@pytest.mark.anyio
async def test_the_oldest_change_is_found_without_the_right_to_read_the_oplog(mongo_url: str) -> None:
    cluster = Restricted.at(mongo_url)
    async with cluster.mongo:
        await cluster.connect(30)
        source = CollectionSource(cluster, cluster.mongo["oldest"], ChangeStreamSettings(), "tweets")
        found = await source.oldest()
        with MongoClient[dict[str, Any]](mongo_url) as client:
            first = client.local["oplog.rs"].find_one(sort=[("$natural", 1)])
        assert first is not None
        # While the first entry of the set is still in the oplog, MongoDB accepts every earlier time, too.
        assert found.time <= first["ts"].time + 1
