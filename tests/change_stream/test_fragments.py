"""The fragments of a change are joined to one change."""

from typing import Any

import bson
import msgspec
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from change_stream.convert import Converter
from change_stream.fragments import Fragments
from change_stream.resume import Stamp

TOKENS = [{"_data": f"8265F1A2B30000000A2B022C0100296E5A100{n}"} for n in range(3)]


def pieces() -> list[dict[str, Any]]:
    head = {"operationType": "replace", "clusterTime": Timestamp(5, 1), "documentKey": {"_id": "9"}}
    parts: list[dict[str, Any]] = [
        head,
        {"fullDocument": {"_id": "9", "a": 1}},
        {"fullDocumentBeforeChange": {"_id": "9"}},
    ]
    return [
        {"_id": token, "splitEvent": {"fragment": n + 1, "of": 3}, **part}
        for n, (token, part) in enumerate(zip(TOKENS, parts, strict=True))
    ]


def test_the_last_piece_completes_the_change_and_gives_its_token() -> None:
    fragments = Fragments()
    first, second, third = pieces()
    assert fragments.add(first) is None
    assert fragments.is_open
    assert fragments.add(second) is None
    whole = fragments.add(third)
    assert whole is not None
    assert not fragments.is_open
    assert whole["_id"] == TOKENS[2]
    assert (whole["fullDocument"], whole["fullDocumentBeforeChange"]) == ({"_id": "9", "a": 1}, {"_id": "9"})


def test_pieces_that_come_again_after_a_crash_are_joined_again() -> None:
    fragments = Fragments()
    first, second, _ = pieces()
    fragments.add(first)
    fragments.add(second)
    again = [fragments.add(piece) for piece in pieces()]
    assert again[:2] == [None, None]
    assert again[2] is not None


def test_a_converter_makes_one_event_of_all_pieces() -> None:
    converter = Converter("tweets", "cdc.db.tweets")
    events = [converter.change(RawBSONDocument(bson.encode(piece)), 1, Stamp("cluster", "scope")) for piece in pieces()]
    assert events[:2] == [None, None]
    event = events[2]
    assert event is not None
    assert str(event.checkpoint).endswith(TOKENS[2]["_data"])
    assert msgspec.json.decode(event.msg)["document"] == {"_id": "9", "a": 1}
