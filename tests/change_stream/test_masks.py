"""A masked or excluded value is nowhere in what leaves the program."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Timestamp
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from change_stream.convert import Converter, Unconvertible
from change_stream.fields import Fields
from change_stream.masks import mask_named
from change_stream.resume import Stamp, StreamPosition
from tweetwire import Event

SECRET = "sEcReT-7391"
PATHS = ("a", "a.b", "a.b.c", "d", "d.a")
names = st.sampled_from(["a", "b", "c", "d", "a.b", "0"])
leaves = st.sampled_from([SECRET, f"{SECRET}!", {"x": SECRET}, [SECRET, [SECRET]], bson.Code(SECRET), 7, None])
documents = st.recursive(
    st.dictionaries(names, leaves, max_size=3),
    lambda inner: st.dictionaries(names, inner | st.lists(inner, max_size=2), max_size=3),
    max_leaves=8,
)


def without(value: Any, path: str) -> bool:
    """Return whether every secret of a document is at or below `path`, through arrays and names with dots."""

    def walk(value: Any, at: str) -> bool:
        if at == path or at.startswith(f"{path}."):
            return True
        if isinstance(value, dict):
            return all(walk(member, f"{at}.{name}" if at else name) for name, member in value.items())
        if isinstance(value, list):
            return all(walk(item, at) for item in value)
        return SECRET not in str(value)

    return walk(value, "")


def change(document: dict[str, Any], updated: dict[str, Any], *, damage: bytes = b"") -> RawBSONDocument:
    whole = {
        "_id": {"_data": "8265F1A2B300000001"},
        "operationType": "update",
        "ns": {"db": "db", "coll": "c"},
        "clusterTime": Timestamp(0x65F1A2B3, 1),
        "documentKey": {"_id": 1},
        "fullDocument": {"_id": 1, **document},
        "fullDocumentBeforeChange": {"_id": 1, **document},
        "updateDescription": {"updatedFields": updated, "removedFields": [], "truncatedArrays": []},
    }
    raw = bson.encode(whole)
    body = raw[4:-1] + damage
    return RawBSONDocument((len(body) + 5).to_bytes(4, "little") + body + b"\0")


def leaving(convert: Callable[[], Event | None]) -> str:
    """Return all text that leaves the program after a conversion."""
    try:
        event = convert()
    except Unconvertible as error:
        return f"{error} {error.raw!r}"
    assert event is not None
    return f"{event.id} {event.key} {bytes(event.msg)!r} {event.checkpoint}"


@pytest.mark.parametrize("how", ["sha256", "null", "last4", "exclude"])
@given(document=documents, path=st.sampled_from(PATHS), is_damaged=st.booleans())
def test_no_byte_of_the_value_is_in_an_event_or_in_a_rejection(
    how: str, document: dict[str, Any], path: str, is_damaged: bool
) -> None:
    if not without(document, path):
        return
    fields = Fields(exclude=[path]) if how == "exclude" else Fields(masks={path: mask_named(how)})
    converter = Converter("c", "p", key_path=path, followers_path=path, fields=fields)
    updated = {name: value for name, value in document.items() if "." not in name}
    damage = b"\x02t\0\x03\0\0\0\xc3\x28\0" if is_damaged else b""
    stamp, position = Stamp("cluster", "scope"), StreamPosition(Timestamp(1, 1))
    conversions = (
        lambda: converter.change(change(document, updated, damage=damage), 1, stamp),
        lambda: converter.snapshot(RawBSONDocument(bson.encode({"_id": 1, **document})), position, 1, "c"),
    )
    assert not any(SECRET in leaving(convert) for convert in conversions)
    assert SECRET.encode() not in converter.refused(f"code 2: {SECRET}", change(document, updated)).raw
    assert SECRET not in str(converter.refused(f"code 2: {SECRET}", change(document, updated)))


def masked(how: str, document: dict[str, Any], path: str = "a") -> Any:
    return Fields(masks={path: mask_named(how)}).document(document)


def test_a_digest_is_that_of_the_text_or_of_the_json_of_other_values() -> None:
    digest = hashlib.sha256(b"x@y.z").hexdigest()
    assert masked("sha256", {"a": "x@y.z", "b": 1}) == {"a": digest, "b": 1}
    assert masked("sha256", {"a": ["x@y.z", None]}) == {"a": [digest, None]}
    assert masked("sha256", {"a": {"y": 1, "x": 2}}) == masked("sha256", {"a": {"x": 2, "y": 1}})
    assert masked("sha256", {"a": 5}) == {"a": hashlib.sha256(b"5").hexdigest()}


def test_the_last_four_characters_of_a_longer_value_stay() -> None:
    assert masked("last4", {"a": "4111111111111234"}) == {"a": "****1234"}
    assert masked("last4", {"a": ["1234", "", 123456, {"b": 1}, None]}) == {
        "a": ["****", "****", "****3456", None, None]
    }
    assert masked("null", {"a": "x"}) == {"a": None}


def test_changes_below_a_masked_value_are_counted_and_left_out() -> None:
    fields = Fields(masks={"a": mask_named("null")})
    found = fields.changed({"updated": {"a.b": 1, "a.0": 2, "b": 3}, "removed": ["a.c"], "truncated": []})
    assert found == {"updated": {"b": 3}, "removed": [], "truncated": [], "unclear": 3}
    known: dict[str, list[str | int]] = {"a.0": ["a", 0]}
    assert fields.changed({"updated": {"a.0": 2}, "removed": [], "truncated": []}, known)["updated"] == {"a.0": None}


def test_a_masked_key_still_groups_events() -> None:
    converter = Converter("c", "p", key_path="mail", fields=Fields(masks={"mail": mask_named("sha256")}))
    raw = RawBSONDocument(bson.encode({"_id": 1, "mail": "x@y.z"}))
    event = converter.snapshot(raw, StreamPosition(Timestamp(1, 1)), 1, "c")
    assert event.key == hashlib.sha256(b"x@y.z").hexdigest()
    assert json.loads(bytes(event.msg))["document"]["mail"] == event.key
