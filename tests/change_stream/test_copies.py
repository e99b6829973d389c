"""A copy has marks, and the deletes that no change reported are published at its end."""

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.change_stream.conftest import Start
from tests.change_stream.programs import Publisher, applied, wait_for
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until

pytestmark = pytest.mark.stack

Mongo = Database[dict[str, Any]]


def messages(broker: BrokerProcess) -> list[Any]:
    return [json.loads(bytes(event.msg)) for event in events_of(broker.address, "tweets")]


def test_each_event_of_a_copy_has_its_number_and_the_end_has_the_exact_count(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    database.tweets.insert_many([{"_id": n} for n in range(30)])
    publisher = start("--snapshot", "initial", "--chunk-size", "1")
    until(lambda: publisher.said("snapshot started"))
    publisher.kill()
    publisher.start()
    until(lambda: publisher.said("snapshot finished"))
    begin, *copied, end = messages(broker)
    assert (begin["op"], begin["copy"], begin["documents"]) == ("snapshot_begin", 1, 30)
    assert [(one["op"], one["copy"]) for one in copied] == [("snapshot", 1)] * 30
    assert (end["op"], end["copy"], end["documents"]) == ("snapshot_end", 1, 30)
    publisher.terminate()
    again = start("--snapshot", "always")
    until(lambda: Counter(one["op"] for one in messages(broker))["snapshot_end"] == 2)
    assert {one["copy"] for one in messages(broker)[32:]} == {33}
    assert again.said('"copy": 33')


def test_a_document_that_was_deleted_without_a_change_gets_a_delete(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    database.tweets.insert_many([{"_id": n, "user": {"id_str": f"u{n}"}} for n in range(10)])
    first = start("--snapshot", "initial")
    until(lambda: first.said("snapshot finished"))
    assert first.terminate() == 0
    database.tweets.delete_many({"_id": {"$in": [3, 7]}})
    database.tweets.delete_one({"_id": 5})
    database.tweets.insert_one({"_id": 5, "new": True})
    # A reset forgets where the stream was, so these deletes are in no change that is read.
    start("--snapshot", "always", "--reset")
    until(lambda: messages(broker)[-1]["op"] == "snapshot_end" and len(messages(broker)) > 12)
    deleted = [one for one in messages(broker) if one["op"] == "delete"]
    assert [(one["document_key"], one["document"]) for one in deleted] == [({"_id": 3}, None), ({"_id": 7}, None)]
    events = events_of(broker.address, "tweets")
    assert [event.key for event in events if event.id in {"3", "7"}] == ["u3", "u7", "u3", "u7"]
    assert applied(events) == {str(document["_id"]): document for document in database.tweets.find()}


@pytest.mark.timeout(180)
def test_deletes_during_repeated_and_interrupted_copies_are_not_lost(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    """A delete of a document that the running copy has not reached is in no change that the copy publishes."""
    total = 1500
    database.tweets.insert_many([{"_id": f"{n:05}"} for n in range(total)])
    publisher = start("--snapshot", "always", "--chunk-size", "20")
    until(lambda: publisher.said("snapshot finished"))
    is_over = threading.Event()

    def write() -> None:
        chance = random.Random(1)
        while not is_over.is_set():
            which = {"_id": f"{chance.randrange(total):05}"}
            if chance.random() < 0.5:
                database.tweets.delete_one(which)
            else:
                database.tweets.replace_one(which, {"n": chance.random()}, upsert=True)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        chance = random.Random(2)
        for _ in range(4):
            publisher.kill()
            publisher.start()
            time.sleep(chance.uniform(0.05, 0.8))
    finally:
        is_over.set()
        writer.join()
    expected = {document["_id"]: document for document in database.tweets.find()}
    until(
        lambda: messages(broker)[-1]["op"] != "snapshot" and applied(events_of(broker.address, "tweets")) == expected,
        90,
    )


@pytest.mark.timeout(240)
def test_300_collections_have_a_stream_each(
    tmp_path: Path, mongo_url: str, broker: BrokerProcess, database: Mongo
) -> None:
    """The pool of pymongo has 100 connections by default, and each waiting stream keeps one busy."""
    names = [f"c{n:03}" for n in range(300)]
    maps = [word for name in names for word in ("--map", f"{name}=many.{name}")]
    where = (mongo_url, broker.address, database.name, *maps, "--connect-timeout", "2m")
    with Publisher(tmp_path / "publisher.log", *where) as publisher:
        for name in (names[0], names[150], names[-1]):
            database[name].insert_one({"_id": name})
            assert [event.id for event in wait_for(broker.address, f"many.{name}", 1)] == [name]
        assert publisher.terminate() == 0
