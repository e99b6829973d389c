"""Documents that MongoDB stores and no driver can decode do not stop a copy or a stream; they are kept aside."""

import base64
import json
from collections import Counter
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.errors import PyMongoError

from change_stream.rejected import REJECTED_TOPIC
from tests.change_stream.conftest import Start
from tests.change_stream.programs import wait_for
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until

pytestmark = pytest.mark.stack

NOT_UTF_8 = b"\xc3\x28"
TEXT = b"\x02%b\x00" + (len(NOT_UTF_8) + 1).to_bytes(4, "little") + NOT_UTF_8 + b"\0"


def document(*elements: bytes) -> bytes:
    raw = b"".join(elements)
    return (len(raw) + 5).to_bytes(4, "little") + raw + b"\0"


def identity(n: int) -> bytes:
    return bson.encode({"_id": n})[4:-1]


BROKEN = {
    "text that is not UTF-8": document(identity(1), TEXT % b"text"),
    "a name that is not UTF-8": document(identity(2), TEXT.replace(b"%b", NOT_UTF_8)),
    "nested text that is not UTF-8": document(identity(3), b"\x03a\0" + document(TEXT % b"b")),
    "an element of an array that is not UTF-8": document(identity(4), b"\x04a\0" + document(TEXT % b"0")),
    "code that is not UTF-8": document(identity(5), (TEXT % b"c").replace(b"\x02", b"\x0d", 1)),
    "a symbol that is not UTF-8": document(identity(6), (TEXT % b"c").replace(b"\x02", b"\x0e", 1)),
    "an expression that is not UTF-8": document(identity(7), b"\x0br\0" + NOT_UTF_8 + b"\0i\0"),
    "an _id that is not UTF-8": document(TEXT % b"_id"),
    "a binary of the old subtype with a wrong length": document(
        identity(8), b"\x05b\0\x05\0\0\0\x02\xff\xff\xff\x7f\0"
    ),
    "a UUID of 3 bytes": document(identity(9), b"\x05b\0\x03\0\0\0\x04abc"),
}
"""Documents that the drivers cannot decode, or that are valid only in part."""


def insert(database: Database[dict[str, Any]]) -> list[str]:
    """Insert those of the broken documents that MongoDB accepts, and return their names."""
    accepted = []
    for name, raw in BROKEN.items():
        try:
            database.command("insert", "tweets", documents=[RawBSONDocument(raw)])
        except PyMongoError:
            continue
        accepted.append(name)
    return accepted


def outcomes(broker: BrokerProcess) -> Counter[str]:
    """Return how many documents became events, by operation, and how many were rejected."""
    found = Counter(json.loads(bytes(event.msg))["op"] for event in events_of(broker.address, "tweets"))
    found["rejected"] = len(events_of(broker.address, REJECTED_TOPIC))
    return found


@pytest.mark.parametrize("chunk", ["1", "3", "4000"])
def test_a_copy_passes_them_and_keeps_their_bytes(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]], chunk: str
) -> None:
    database.tweets.insert_many([{"_id": n} for n in range(-5, 0)])
    accepted = insert(database)
    assert len(accepted) >= 5, accepted
    database.tweets.insert_many([{"_id": n} for n in range(10, 15)])
    publisher = start("--snapshot", "initial", "--chunk-size", chunk)
    until(lambda: publisher.said("snapshot finished"))
    total = outcomes(broker)
    assert total["snapshot"] + total["rejected"] == 10 + len(accepted)
    assert total["rejected"] >= 5
    kept = {
        base64.b64decode(json.loads(bytes(event.msg))["raw"]) for event in events_of(broker.address, REJECTED_TOPIC)
    }
    assert kept <= set(BROKEN.values())
    database.tweets.insert_one({"_id": "after"})
    until(lambda: outcomes(broker)["insert"] == 1)


def test_a_restarted_copy_and_the_stream_pass_them_too(
    start: Start, broker: BrokerProcess, database: Database[dict[str, Any]]
) -> None:
    accepted = insert(database)
    publisher = start("--snapshot", "initial", "--chunk-size", "1")
    until(lambda: publisher.said("snapshot started"))
    publisher.kill()
    publisher.start()
    until(lambda: publisher.said("snapshot finished"))
    before = outcomes(broker)
    assert before["snapshot"] + before["rejected"] == len(accepted)
    database.tweets.delete_many({})
    assert insert(database) == accepted
    database.tweets.insert_one({"_id": "after"})
    wait_for(broker.address, "tweets", 1)
    until(lambda: events_of(broker.address, "tweets")[-1].id == "after")
    after = outcomes(broker)
    assert after["insert"] - 1 + after["rejected"] - before["rejected"] >= len(accepted)
