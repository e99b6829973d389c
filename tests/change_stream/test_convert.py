"""A change becomes the event that PIPELINE.md describes."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import msgspec
import pytest
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from broker import Event
from change_stream.convert import Converter, Unconvertible, document_id, priority_of
from change_stream.resume import Position, Stamp

TOKEN = {"_data": "8265F1A2B30000000A2B022C0100296E5A1004"}
TIME = Timestamp(1710334643, 10)
WALL = datetime(2024, 3, 13, 12, 57, 23, 456000, tzinfo=UTC)
WALL_MS = 1710334643456
TWEET = {
    "_id": "9007199254740993",
    "text": "naïve 👩‍👩‍👧",
    "user": {"id_str": "77", "followers_count": 12345},
    "created_at": WALL,
    "count": Int64(5),
}
stamp = Stamp("cluster", "scope")


def raw(document: dict[str, Any]) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(document))


def change(operation: str, **members: Any) -> dict[str, Any]:
    return {
        "_id": TOKEN,
        "operationType": operation,
        "clusterTime": TIME,
        "wallTime": WALL,
        "ns": {"db": "db", "coll": "tweets"},
        **members,
    }


@pytest.fixture
def tweets() -> Converter:
    return Converter("tweets", "cdc.db.tweets", key_path="user.id_str", followers_path="user.followers_count")


def msg(event: Event) -> Any:
    return msgspec.json.decode(event.msg)


def test_an_insert(tweets: Converter) -> None:
    event = tweets.change(raw(change("insert", fullDocument=TWEET, documentKey={"_id": TWEET["_id"]})), 5, stamp)
    assert (event.id, event.key, event.priority) == ("9007199254740993", "77", 4)
    assert (event.producer, event.sequence) == ("cdc.db.tweets", 5)
    assert event.checkpoint == f"v1/cluster/scope/1710334643.10/{TOKEN['_data']}"
    assert msg(event) == {
        "op": "insert",
        "collection": "tweets",
        "document": {**TWEET, "created_at": "2024-03-13T12:57:23.456Z"},
        "changed": None,
        "before": None,
        "at": WALL_MS,
    }


def test_an_update_tells_what_it_touched(tweets: Converter) -> None:
    described = {
        "updatedFields": {"user.name": "x"},
        "removedFields": ["gone"],
        "truncatedArrays": [{"field": "last", "newSize": 20}],
    }
    event = tweets.change(
        raw(change("update", fullDocument=TWEET, documentKey={"_id": TWEET["_id"]}, updateDescription=described)),
        5,
        stamp,
    )
    assert msg(event)["changed"] == {
        "updated": {"user.name": "x"},
        "removed": ["gone"],
        "truncated": [{"field": "last", "newSize": 20}],
    }


def test_an_update_whose_document_is_gone_is_an_event_without_document(tweets: Converter) -> None:
    described = {"updatedFields": {"n": 1}, "removedFields": []}
    event = tweets.change(
        raw(change("update", fullDocument=None, documentKey={"_id": "9"}, updateDescription=described)), 5, stamp
    )
    assert (event.id, event.key, event.priority) == ("9", "9", 0)
    assert msg(event)["document"] is None
    assert msg(event)["changed"]["updated"] == {"n": 1}


def test_a_delete_takes_key_and_priority_from_the_pre_image(tweets: Converter) -> None:
    event = tweets.change(raw(change("delete", documentKey={"_id": "9"}, fullDocumentBeforeChange=TWEET)), 5, stamp)
    assert (event.id, event.key, event.priority) == ("9", "77", 4)
    assert msg(event)["document"] is None
    assert msg(event)["before"]["text"] == TWEET["text"]


def test_a_delete_without_pre_image(tweets: Converter) -> None:
    event = tweets.change(raw(change("delete", documentKey={"_id": ObjectId("65f1a2b3c4d5e6f708192a3b")})), 5, stamp)
    assert event.id == event.key == "65f1a2b3c4d5e6f708192a3b"


def test_without_wall_time_the_cluster_time_counts(tweets: Converter) -> None:
    document = change("delete", documentKey={"_id": "9"})
    del document["wallTime"]
    assert msg(tweets.change(raw(document), 5, stamp))["at"] == 1710334643000


@pytest.mark.parametrize(
    ("operation", "op"), [("drop", "drop"), ("dropDatabase", "drop"), ("invalidate", "invalidate")]
)
def test_what_befalls_the_collection_is_an_event_of_its_own(tweets: Converter, operation: str, op: str) -> None:
    event = tweets.change(raw(change(operation)), 5, stamp)
    assert (event.id, event.priority) == ("tweets", 0)
    assert msg(event) == {
        "op": op,
        "collection": "tweets",
        "document": None,
        "changed": None,
        "before": None,
        "at": WALL_MS,
    }


def test_a_rename_tells_the_new_name(tweets: Converter) -> None:
    assert msg(tweets.change(raw(change("rename", to={"db": "db", "coll": "old"})), 5, stamp))["to"] == "old"


def test_a_transaction_is_passed_on(tweets: Converter) -> None:
    session = {"id": bson.Binary(b"\x01" * 16, 4), "uid": b"\x02"}
    document = change("delete", documentKey={"_id": "9"}, lsid=session, txnNumber=Int64(3))
    assert msg(tweets.change(raw(document), 5, stamp))["transaction"] == {
        "lsid": {"id": "01010101-0101-0101-0101-010101010101", "uid": "Ag=="},
        "txnNumber": 3,
    }


def test_a_sharded_collections_documents_are_told_apart_by_their_shard_key(tweets: Converter) -> None:
    event = tweets.change(raw(change("delete", documentKey={"country": "md", "_id": 1})), 5, stamp)
    assert event.id == '{"country":"md","_id":1}'


def test_a_snapshot(tweets: Converter) -> None:
    event = tweets.snapshot(raw(TWEET), Position(TIME), 9, "checkpoint")
    assert (event.id, event.key, event.priority, event.sequence) == ("9007199254740993", "77", 4, 9)
    assert msg(event)["op"] == "snapshot"
    assert msg(event)["at"] == 1710334643000


def test_canonical_documents_in_a_plain_envelope() -> None:
    converter = Converter("tweets", "cdc.db.tweets", mode="canonical", followers_path="user.followers_count")
    event = converter.change(raw(change("insert", fullDocument=TWEET, documentKey={"_id": "9"})), 5, stamp)
    assert msg(event)["at"] == WALL_MS
    assert msg(event)["document"]["count"] == {"$numberLong": "5"}
    assert event.priority == 4


def test_invalid_utf8_cannot_be_converted_and_keeps_its_bytes(tweets: Converter) -> None:
    good = bson.encode(change("insert", fullDocument={"_id": "1", "text": "@@@@"}, documentKey={"_id": "1"}))
    bad = good.replace(b"@@@@", b"\xed\xa0\x80\xff")
    with pytest.raises(Unconvertible) as refused:
        tweets.change(RawBSONDocument(bad), 5, stamp)
    assert refused.value.raw == bad


def test_an_unknown_operation_cannot_be_converted(tweets: Converter) -> None:
    with pytest.raises(Unconvertible, match="shardCollection"):
        tweets.change(raw(change("shardCollection")), 5, stamp)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("", '""'),
        (5, "5"),
        (Int64(2**60), str(2**60)),
        (None, "null"),
        (True, "true"),
        (ObjectId("65f1a2b3c4d5e6f708192a3b"), "65f1a2b3c4d5e6f708192a3b"),
        ({"a": 1}, '{"a":1}'),
        ("x" * 256, "x" * 256),
    ],
)
def test_an_id_of_any_type_is_text(value: Any, text: str) -> None:
    assert document_id(value) == text


def test_long_ids_stay_apart() -> None:
    first, second = document_id("x" * 300 + "a"), document_id("x" * 300 + "b")
    assert first != second
    assert len(first) == len(second) == 256


@given(st.text())
def test_every_id_fits(text: str) -> None:
    assert 1 <= len(document_id(text)) <= 256


@pytest.mark.parametrize(
    ("followers", "priority"),
    [(0, 0), (9, 0), (10, 1), (99, 1), (100, 2), (999_999, 5), (1_000_000, 6), (10**9, 6), (Int64(5000), 3)],
)
def test_priority_grows_with_the_digits_of_the_followers(followers: int, priority: int) -> None:
    assert priority_of(followers) == priority


@pytest.mark.parametrize("followers", [None, -5, "12345", 1e6, True, []])
def test_what_is_no_count_has_no_priority(followers: Any) -> None:
    assert priority_of(followers) == 0


def recordings() -> list[Path]:
    return sorted((Path(__file__).parents[3] / "shared" / "data" / "tweets").glob("*.jsonl"))


@pytest.mark.skipif(not recordings(), reason="the recorded tweets are not there")
def test_recorded_tweets_come_out_as_they_went_in(tweets: Converter) -> None:
    count = 0
    for recording in recordings():
        for line in recording.read_bytes().splitlines():
            tweet = {"_id": str(count), **json.loads(line)}
            inserted = raw(change("insert", fullDocument=tweet, documentKey={"_id": tweet["_id"]}))
            event = tweets.change(inserted, count, stamp)
            assert event is not None
            assert msg(event)["document"] == with_large_integers_as_text(tweet)
            count += 1
    assert count > 1000


def with_large_integers_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: with_large_integers_as_text(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_large_integers_as_text(item) for item in value]
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value
