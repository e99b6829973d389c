"""One member of a document is found without decoding the others."""

from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from change_stream.elements import element_of, literal_of, member_of
from change_stream.extended_json import CODEC
from tests.change_stream.test_extended_json import ALL_TYPES

INVALID_TEXT = b"\x02t\x00\x03\x00\x00\x00\xc3\x28\x00"
"""A member t whose text is not UTF-8."""


def document(elements: bytes) -> RawBSONDocument:
    return RawBSONDocument((len(elements) + 5).to_bytes(4, "little") + elements + b"\0")


def encoded(value: dict[str, Any]) -> bytes:
    return bson.encode(value, codec_options=CODEC)


def elements(value: dict[str, Any]) -> bytes:
    return encoded(value)[4:-1]


@pytest.mark.parametrize("name", ALL_TYPES)
def test_a_member_of_each_type_is_found_after_members_of_all_other_types(name: str) -> None:
    others = {other: value for other, value in ALL_TYPES.items() if other not in {name, "wanted"}}
    raw = document(elements(others) + elements({"wanted": ALL_TYPES[name]}) + elements({"wanted": "a second one"}))
    assert element_of(raw, "wanted") == encoded({"wanted": ALL_TYPES[name]})


def test_other_members_may_be_text_that_is_not_utf_8() -> None:
    for raw in (INVALID_TEXT + elements({"_id": 7}), elements({"_id": 7}) + INVALID_TEXT):
        with pytest.raises(bson.errors.InvalidBSON):
            document(raw)["_id"]
        assert member_of(document(raw), "_id") == 7


def test_a_literal_keeps_a_value_that_cannot_be_decoded() -> None:
    assert literal_of(bytes(document(INVALID_TEXT).raw)).raw == document(INVALID_TEXT.replace(b"t", b"$literal", 1)).raw
    assert dict(literal_of(bson.encode({"_id": {"a": 1}}))) == {"$literal": RawBSONDocument(bson.encode({"a": 1}))}


@pytest.mark.parametrize("name", ["b", "A", "", "aa"])
def test_a_missing_member_is_a_key_error(name: str) -> None:
    with pytest.raises(KeyError):
        element_of(document(elements({"a": 1, "longer": "x"})), name)


@given(st.binary(max_size=60))
def test_damaged_bytes_are_an_error_and_never_an_endless_search(raw: bytes) -> None:
    with pytest.raises((KeyError, ValueError)):
        element_of(document(raw), "a name that random bytes do not have")
