"""Pipelines together with copies, and pipelines that fail for one change."""

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

from change_stream.rejected import REJECTED_TOPIC
from tests.change_stream.conftest import Start
from tests.change_stream.programs import Publisher, wait_for
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until

pytestmark = pytest.mark.stack

Mongo = Database[dict[str, Any]]
ODD = {"$expr": {"$eq": [{"$mod": ["$n", 2]}, 1]}}
ODD_CHANGES = [{"$match": {"$expr": {"$eq": [{"$mod": ["$fullDocument.n", 2]}, 1]}}}]
DIVIDES = [
    {"$match": {"fullDocument.skip": {"$ne": True}}},
    {"$set": {"fullDocument.inverse": {"$divide": [1, "$fullDocument.n"]}}},
]


def file_of(tmp_path: Path, content: Any) -> str:
    path = tmp_path / f"{abs(hash(json.dumps(content)))}.json"
    path.write_text(json.dumps(content))
    return str(path)


def kinds(broker: BrokerProcess) -> Counter[str]:
    return Counter(json.loads(bytes(event.msg))["op"] for event in events_of(broker.address, "tweets"))


def test_a_copy_and_the_changes_have_the_same_filter(
    start: Start, broker: BrokerProcess, database: Mongo, tmp_path: Path
) -> None:
    database.tweets.insert_many([{"_id": n, "n": n} for n in range(100)])
    flags = ("--pipeline", f"tweets={file_of(tmp_path, ODD_CHANGES)}", "--chunk-size", "7", "--snapshot", "initial")
    publisher = start(*flags, "--snapshot-filter", f"tweets={file_of(tmp_path, ODD)}")
    until(lambda: publisher.said("snapshot finished"))
    database.tweets.insert_many([{"_id": n, "n": n} for n in range(100, 120)])
    events = wait_for(broker.address, "tweets", 62)
    assert [int(event.id) for event in events if event.id != "tweets"] == list(range(1, 120, 2))
    assert kinds(broker) == {"snapshot": 50, "insert": 10, "snapshot_begin": 1, "snapshot_end": 1}


def test_only_copies_and_ends(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    database.tweets.insert_many([{"_id": n} for n in range(100)])
    publisher = start("--snapshot", "only", "--chunk-size", "30")
    assert publisher.wait() == 0
    database.tweets.insert_one({"_id": 100})
    assert kinds(broker) == {"snapshot": 100, "snapshot_begin": 1, "snapshot_end": 1}
    start("--snapshot", "never")
    wait_for(broker.address, "tweets", 103)
    assert kinds(broker) == {"snapshot": 100, "insert": 1, "snapshot_begin": 1, "snapshot_end": 1}


@pytest.mark.parametrize("flags", [("--snapshot", "initial"), ("--on-history-lost", "resnapshot")])
def test_a_pipeline_with_a_copy_needs_a_filter(
    tmp_path: Path, mongo_url: str, broker: BrokerProcess, flags: tuple[str, ...]
) -> None:
    pipeline = ("--map", "tweets=tweets", "--pipeline", f"tweets={file_of(tmp_path, ODD_CHANGES)}")
    publisher = Publisher(tmp_path / "log", mongo_url, broker.address, "db", *pipeline, *flags)
    publisher.launch()
    assert publisher.wait() == 2
    assert publisher.said("filters the changes and not the copy; give --snapshot-filter tweets=FILE")


@pytest.mark.parametrize("rejected", ["raw", "digest"])
def test_a_change_for_which_the_stages_fail_is_kept_aside_and_the_stream_continues(
    start: Start, broker: BrokerProcess, database: Mongo, tmp_path: Path, rejected: str
) -> None:
    publisher = start("--pipeline", f"tweets={file_of(tmp_path, DIVIDES)}", "--rejected", rejected)
    numbers = [1, 2, 0, 4, 0, 5]
    documents = [{"_id": n, "n": number} for n, number in enumerate(numbers)]
    # The stages filter these out before they would fail.
    skipped = [{"_id": f"s{n}", "n": 0, "skip": True} for n in range(5)]
    database.tweets.insert_many([*documents[:2], *skipped, *documents[2:]])
    database.tweets.insert_one({"_id": "last", "n": 8})
    until(
        lambda: [event.id for event in events_of(broker.address, "tweets")] == ["0", "1", "3", "5", "last"],
        15,
        publisher.log,
    )
    assert [event.sequence for event in events_of(broker.address, "tweets")] == [1, 2, 3, 4, 5]
    kept = [json.loads(bytes(event.msg)) for event in events_of(broker.address, REJECTED_TOPIC)]
    assert len(kept) == 2
    assert all("the stages of --pipeline fail for this change" in one["reason"] for one in kept)
    if rejected == "raw":
        found = [bson.decode(base64.b64decode(one["raw"])) for one in kept]
        assert [one["fullDocument"]["_id"] for one in found] == [2, 4]
    else:
        assert all(one["raw"] is None and len(one["sha256"]) == 64 for one in kept)
    publisher.kill()
    publisher.start()
    database.tweets.insert_one({"_id": "again", "n": 8})
    wait_for(broker.address, "tweets", 6)
    assert len(events_of(broker.address, REJECTED_TOPIC)) == 2
