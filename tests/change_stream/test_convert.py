"""A change becomes the event that the documentation of the change streams describes."""

import json
from collections import Counter
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
from hypothesis import given, settings
from hypothesis import strategies as st

from change_stream.convert import Converter, Unconvertible, document_id, priority_of
from change_stream.extended_json import JsonMode
from change_stream.fields import Fields
from change_stream.resume import Stamp, StreamPosition
from tests.change_stream.test_fields import flag_paths, is_wanted, marked, member_names, shapes, spots, text_of
from tests.support.recordings import invented, recorded
from tweetwire import Event

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


def converted(converter: Converter, document: dict[str, Any]) -> Event:
    """Convert a change that consists of one fragment."""
    event = converter.change(raw(document), 5, stamp)
    assert event is not None
    return event


def msg(event: Event) -> Any:
    return msgspec.json.decode(event.msg)


def test_an_insert(tweets: Converter) -> None:
    event = converted(tweets, change("insert", fullDocument=TWEET, documentKey={"_id": TWEET["_id"]}))
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
        "document_key": {"_id": TWEET["_id"]},
    }


def test_an_update_shows_the_members_that_it_changed(tweets: Converter) -> None:
    described = {
        "updatedFields": {"user.name": "x"},
        "removedFields": ["gone"],
        "truncatedArrays": [{"field": "last", "newSize": 20}],
    }
    event = converted(
        tweets, change("update", fullDocument=TWEET, documentKey={"_id": TWEET["_id"]}, updateDescription=described)
    )
    assert msg(event)["changed"] == {
        "updated": {"user.name": "x"},
        "removed": ["gone"],
        "truncated": [{"field": "last", "newSize": 20}],
    }


def test_an_update_whose_document_is_gone_is_an_event_without_document(tweets: Converter) -> None:
    described = {"updatedFields": {"n": 1}, "removedFields": []}
    event = converted(
        tweets, change("update", fullDocument=None, documentKey={"_id": "9"}, updateDescription=described)
    )
    assert (event.id, event.key, event.priority) == ("9", "9", 0)
    assert msg(event)["document"] is None
    assert msg(event)["changed"]["updated"] == {"n": 1}


def test_a_delete_takes_key_and_priority_from_the_pre_image(tweets: Converter) -> None:
    event = converted(tweets, change("delete", documentKey={"_id": "9"}, fullDocumentBeforeChange=TWEET))
    assert (event.id, event.key, event.priority) == ("9", "77", 4)
    assert msg(event)["document"] is None
    assert msg(event)["before"]["text"] == TWEET["text"]


def test_a_delete_without_pre_image(tweets: Converter) -> None:
    event = converted(tweets, change("delete", documentKey={"_id": ObjectId("65f1a2b3c4d5e6f708192a3b")}))
    assert event.id == event.key == "65f1a2b3c4d5e6f708192a3b"


def test_without_wall_time_the_cluster_time_counts(tweets: Converter) -> None:
    document = change("delete", documentKey={"_id": "9"})
    del document["wallTime"]
    assert msg(converted(tweets, document))["at"] == 1710334643000


@pytest.mark.parametrize(
    ("operation", "op"), [("drop", "drop"), ("dropDatabase", "drop"), ("invalidate", "invalidate")]
)
def test_a_change_of_the_whole_collection_is_one_event(tweets: Converter, operation: str, op: str) -> None:
    event = converted(tweets, change(operation))
    assert (event.id, event.priority) == ("tweets", 0)
    assert msg(event) == {
        "op": op,
        "collection": "tweets",
        "document": None,
        "changed": None,
        "before": None,
        "at": WALL_MS,
    }


def test_a_rename_has_the_new_name(tweets: Converter) -> None:
    assert msg(converted(tweets, change("rename", to={"db": "db", "coll": "old"})))["to"] == "old"


def test_a_transaction_is_passed_on(tweets: Converter) -> None:
    session = {"id": bson.Binary(b"\x01" * 16, 4), "uid": b"\x02"}
    document = change("delete", documentKey={"_id": "9"}, lsid=session, txnNumber=Int64(3))
    assert msg(converted(tweets, document))["transaction"] == {
        "lsid": {"id": "01010101-0101-0101-0101-010101010101", "uid": "Ag=="},
        "txnNumber": 3,
    }


def test_a_sharded_collections_documents_are_told_apart_by_their_shard_key(tweets: Converter) -> None:
    event = converted(tweets, change("delete", documentKey={"country": "md", "_id": 1}))
    assert event.id == '{"country":"md","_id":1}'


@pytest.mark.parametrize(
    ("mode", "number", "text"),
    [("plain", 5, "5"), ("relaxed", 5, "5"), ("canonical", {"$numberInt": "5"}, "5")],
)
def test_ids_that_print_alike_are_told_apart_by_the_documents_key(mode: JsonMode, number: Any, text: str) -> None:
    converter = Converter("tweets", "cdc.db.tweets", mode=mode)
    deletes = [converted(converter, change("delete", documentKey={"_id": key})) for key in (5, "5")]
    assert {event.id for event in deletes} == {"5"}
    assert [msg(event)["document_key"] for event in deletes] == [{"_id": number}, {"_id": text}]


def test_a_documents_key_has_the_shard_key_and_stays_where_the_documents_go(tweets: Converter) -> None:
    key = {"country": "md", "_id": 1}
    event = converted(tweets, change("delete", documentKey=key))
    assert msg(event)["document_key"] == key
    small = Converter("tweets", "cdc.db.tweets", msg_bytes_max=1000)
    event = converted(small, change("insert", fullDocument={"_id": 1, "t": "x" * 1000}, documentKey=key))
    assert (msg(event)["document"], msg(event)["document_key"]) == (None, key)
    event = converted(small, change("delete", documentKey={"_id": "x" * 1000}))
    assert "document_key" not in msg(event)
    assert msg(event)["omitted"] > 1000


def test_a_snapshots_document_has_its_key(tweets: Converter) -> None:
    assert msg(tweets.snapshot(raw(TWEET), StreamPosition(TIME), 9, "c"))["document_key"] == {"_id": TWEET["_id"]}


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        (Fields(exclude=["user.id_str"]), "9"),
        (Fields(exclude=["user"]), "9"),
        (Fields(include=["text"]), "9"),
        (Fields(include=["user.id_str"], rename={"user": "author"}), "secret"),
    ],
)
def test_a_key_that_the_documents_do_not_have_is_left_out(fields: Fields, key: str) -> None:
    converter = Converter("tweets", "cdc.db.tweets", key_path="user.id_str", fields=fields)
    document = {"_id": "9", "user": {"id_str": "secret"}, "text": "x"}
    event = converted(converter, change("insert", fullDocument=document, documentKey={"_id": "9"}))
    assert event is not None
    assert event.key == key
    assert (b"secret" in msgspec.json.encode(event)) == (key == "secret")


def test_an_excluded_shard_key_is_in_neither_id_nor_key() -> None:
    converter = Converter("tweets", "cdc.db.tweets", fields=Fields(exclude=["user.country"]))
    event = converted(converter, change("delete", documentKey={"user.country": "secret", "_id": 1}))
    assert event is not None
    assert (event.id, msg(event)["document_key"]) == ("1", {"_id": 1})


def test_members_beside_those_of_a_reference_are_left_out_too() -> None:
    converter = Converter("tweets", "cdc.db.tweets", fields=Fields(exclude=["a.more", "more"]))
    reference = {"$ref": "users", "$id": 7, "more": "secret"}
    document = {"_id": 1, "a": reference, **reference}
    images = {"fullDocument": document, "updateDescription": {"updatedFields": reference | {"a": reference}}}
    event = converted(converter, change("update", documentKey={"_id": 1}, **images))
    kept = {"$ref": "users", "$id": 7}
    assert event is not None
    assert msg(event)["document"] == {"_id": 1, "a": kept, **kept}
    assert msg(event)["changed"]["updated"] == {"a": kept, **kept}


@settings(max_examples=500)
@given(
    st.dictionaries(member_names, shapes, max_size=5),
    st.lists(flag_paths, max_size=2),
    st.lists(flag_paths, max_size=3),
    st.sampled_from(["a", "a.b", "b", "c.0", "_id"]),
    st.sampled_from([None, "a", "a.b"]),
    st.booleans(),
)
def test_an_excluded_value_is_nowhere_in_the_line(
    shape: dict[str, Any], include: list[str], exclude: list[str], key: str, shard_key: str | None, is_known: bool
) -> None:
    document = marked(shape) | {"_id": "the id"}
    every = spots(document)
    described: dict[str, Any] = {
        "updatedFields": {text_of(spot): value for spot, value in every.items()},
        "removedFields": [text_of(spot) for spot in every],
        "truncatedArrays": [{"field": text_of(spot), "newSize": 1} for spot in every],
    }
    texts = Counter(map(text_of, every))
    if is_known and max(texts.values()) == 1:
        described["disambiguatedPaths"] = {text_of(spot): list(spot) for spot in every}
    document_key = {name: document[name] for name in (shard_key, "_id") if name in document}
    images = {"fullDocument": document, "fullDocumentBeforeChange": document, "updateDescription": described}
    converter = Converter("tweets", "cdc.db.tweets", key_path=key, fields=Fields(include, exclude))
    update = converted(converter, change("update", documentKey=document_key, **images))
    copied = converter.snapshot(raw(document), StreamPosition(TIME), 5, "c")
    line = msgspec.json.encode([update, copied]).decode()
    left = [spot for spot, value in every.items() if value == repr(spot) and not is_wanted(spot, include, exclude)]
    assert not [spot for spot in left if json.dumps(repr(spot))[1:-1] in line]


def test_mongodbs_own_reading_of_a_path_is_used() -> None:
    """The event is written by hand: only MongoDB 6.1 and later have `disambiguatedPaths`."""
    converter = Converter("tweets", "cdc.db.tweets", fields=Fields(exclude=["a.b"]))
    described = {
        "updatedFields": {"a.0.b": 1, "a.1.b": 2},
        "removedFields": [],
        "truncatedArrays": [],
        "disambiguatedPaths": {"a.0.b": ["a", "0", "b"]},
    }
    update = change("update", documentKey={"_id": 1}, updateDescription=described)
    assert msg(converted(converter, update))["changed"]["updated"] == {"a.0.b": 1}


def test_a_change_that_cannot_be_converted_is_kept_without_excluded_fields() -> None:
    good = bson.encode(change("insert", fullDocument={"_id": "1", "text": "@@@@"}, documentKey={"_id": "1"}))
    bad = RawBSONDocument(good.replace(b"@@@@", b"\xed\xa0\x80\xff"))
    with pytest.raises(Unconvertible) as refused:
        Converter("tweets", "cdc.db.tweets", fields=Fields(exclude=["secret"])).change(bad, 5, stamp)
    assert (refused.value.raw, refused.value.size) == (b"", len(bad.raw))


def test_a_snapshot(tweets: Converter) -> None:
    event = tweets.snapshot(raw(TWEET), StreamPosition(TIME), 9, "checkpoint")
    assert (event.id, event.key, event.priority, event.sequence) == ("9007199254740993", "77", 4, 9)
    assert msg(event)["op"] == "snapshot"
    assert msg(event)["at"] == 1710334643000


def test_canonical_documents_in_a_plain_envelope() -> None:
    converter = Converter("tweets", "cdc.db.tweets", mode="canonical", followers_path="user.followers_count")
    event = converted(converter, change("insert", fullDocument=TWEET, documentKey={"_id": "9"}))
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
        converted(tweets, change("shardCollection"))


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
def test_a_value_that_is_not_a_count_has_no_priority(followers: Any) -> None:
    assert priority_of(followers) == 0


@pytest.mark.parametrize(
    ("path", "count"),
    [
        *invented("tweets/stream.jsonl", 14),
        *invented("tweets/shapes.jsonl", 11),
        *invented("tweets/escaped.jsonl", 4),
        *invented("tweets/extended.jsonl", 4),
        *invented("tweets/control.jsonl", 5),
        *recorded("tweets/stream-2016-minute-with-deletes.jsonl", 3093),
        *recorded("tweets/shapes-2006-2018.jsonl", 569),
        *recorded("tweets/escaped-2014.jsonl", 100),
        *recorded("tweets/extended-2016.jsonl", 28),
        *recorded("tweets/control-messages.jsonl", 200),
    ],
)
def test_the_tweets_of_a_file_come_out_as_they_went_in(tweets: Converter, path: Path, count: int) -> None:
    lines = path.read_bytes().splitlines()
    assert len(lines) == count
    for number, line in enumerate(lines):
        tweet = {"_id": str(number), **json.loads(line)}
        inserted = change("insert", fullDocument=tweet, documentKey={"_id": tweet["_id"]})
        assert msg(converted(tweets, inserted))["document"] == with_large_integers_as_text(tweet)


def with_large_integers_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: with_large_integers_as_text(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_large_integers_as_text(item) for item in value]
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value
