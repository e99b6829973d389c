"""BSON is converted to JSON with the same meaning."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import bson
import msgspec
import pytest
from bson import json_util
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from change_stream.extended_json import CODEC, encoder, format_date

ALL_TYPES: dict[str, Any] = {
    "double": 1.5,
    "minus_zero": -0.0,
    "infinity": float("inf"),
    "text": "naïve \u2028 \x00 👩‍👩‍👧 \u0085",
    "": "an empty name",
    "document": {"a": {"b": [1, "2", None]}},
    "array": [[], {}, 1],
    "binary": Binary(b"\x00\xff", 0),
    "own_binary": Binary(b"\x01", 128),
    "md5": Binary(b"\x02" * 16, 5),
    "uuid": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
    "object_id": ObjectId("65f1a2b3c4d5e6f708192a3b"),
    "yes": True,
    "no": False,
    "date": DatetimeMS(1700000000123),
    "far_date": DatetimeMS(-(10**17)),
    "null": None,
    "regex": Regex("^a.*/b", "im"),
    "code": Code("f()"),
    "scoped_code": Code("f()", {"x": 1}),
    "int": -5,
    "small_int64": Int64(7),
    "large_int64": Int64(2**63 - 1),
    "timestamp": Timestamp(1700000000, 4),
    "decimal": Decimal128("0.10"),
    "decimal_nan": Decimal128("NaN"),
    "min": MinKey(),
    "max": MaxKey(),
    "ref": DBRef("users", ObjectId("65f1a2b3c4d5e6f708192a3b"), "other"),
}


def through_bson(document: dict[str, Any]) -> dict[str, Any]:
    return bson.decode(bson.encode(document, codec_options=CODEC), CODEC)


def test_canonical_json_gives_every_bson_type_back() -> None:
    before = bson.encode(ALL_TYPES, codec_options=CODEC)
    text = encoder("canonical")(bson.decode(before, CODEC)).decode()
    options = json_util.CANONICAL_JSON_OPTIONS.with_options(
        datetime_conversion=DatetimeConversion.DATETIME_MS, uuid_representation=CODEC.uuid_representation
    )
    assert bson.encode(json_util.loads(text, json_options=options), codec_options=CODEC) == before


def test_canonical_json_keeps_nan() -> None:
    assert json.loads(encoder("canonical")({"n": float("nan")})) == {"n": {"$numberDouble": "NaN"}}


def test_relaxed_json_writes_numbers_and_dates_as_people_do() -> None:
    document = through_bson({"i": Int64(5), "at": datetime(2026, 1, 2, tzinfo=UTC)})
    assert json.loads(encoder("relaxed")(document)) == {"i": 5, "at": {"$date": "2026-01-02T00:00:00Z"}}


def test_plain_json_of_every_bson_type() -> None:
    assert json.loads(encoder("plain")(through_bson(ALL_TYPES))) == {
        "double": 1.5,
        "minus_zero": 0.0,
        "infinity": None,
        "text": "naïve \u2028 \x00 👩‍👩‍👧 \u0085",
        "": "an empty name",
        "document": {"a": {"b": [1, "2", None]}},
        "array": [[], {}, 1],
        "binary": "AP8=",
        "own_binary": "AQ==",
        "md5": "AgICAgICAgICAgICAgICAg==",
        "uuid": "00112233-4455-6677-8899-aabbccddeeff",
        "object_id": "65f1a2b3c4d5e6f708192a3b",
        "yes": True,
        "no": False,
        "date": "2023-11-14T22:13:20.123Z",
        "far_date": "-3166904-02-24T14:13:20.000Z",
        "null": None,
        "regex": "/^a.*/b/im",
        "code": "f()",
        "scoped_code": {"code": "f()", "scope": {"x": 1}},
        "int": -5,
        "small_int64": 7,
        "large_int64": "9223372036854775807",
        "timestamp": {"t": 1700000000, "i": 4},
        "decimal": "0.10",
        "decimal_nan": "NaN",
        "min": "MinKey",
        "max": "MaxKey",
        "ref": {"$ref": "users", "$id": "65f1a2b3c4d5e6f708192a3b", "$db": "other"},
    }


@pytest.mark.parametrize(
    ("number", "written"),
    [(2**53, 2**53), (-(2**53), -(2**53)), (2**53 + 1, str(2**53 + 1)), (-(2**63), str(-(2**63)))],
)
def test_plain_int64_beyond_what_a_double_holds_is_a_string(number: int, written: int | str) -> None:
    assert msgspec.json.decode(encoder("plain")(through_bson({"n": Int64(number)})))["n"] == written


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
        (253402300800000, "+010000-01-01T00:00:00.000Z"),
        (-62135596800000, "0001-01-01T00:00:00.000Z"),
        (-62135596800001, "0000-12-31T23:59:59.999Z"),
        (-62167219200001, "-000001-12-31T23:59:59.999Z"),
    ],
)
def test_dates_in_and_outside_of_pythons_years(milliseconds: int, text: str) -> None:
    assert format_date(milliseconds) == text


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))
def test_a_date_reads_back_as_it_was(date: datetime) -> None:
    date = date.replace(microsecond=date.microsecond // 1000 * 1000, tzinfo=UTC)
    written = format_date(int(DatetimeMS(date)))
    assert datetime.fromisoformat(written) == date


def test_bytes_that_are_not_bson_are_refused() -> None:
    with pytest.raises(TypeError, match="not a BSON type: object"):
        encoder("plain")(object())


def element(kind: int, value: bytes) -> bytes:
    """Return the BSON of a document whose member `a` has a type that pymongo cannot write."""
    body = bytes([kind]) + b"a\0" + value
    return (len(body) + 5).to_bytes(4, "little") + body + b"\0"


@pytest.mark.parametrize(
    ("raw", "written"),
    [
        (element(0x06, b""), {"a": None}),
        (element(0x0E, b"\x02\0\0\0b\0"), {"a": "b"}),
        (element(0x0C, b"\x02\0\0\0b\0" + b"\x56" * 12), {"a": {"$ref": "b", "$id": {"$oid": "56" * 12}}}),
        (element(0x10, b"\x01\0\0\0" + b"\x10a\0" + b"\x02\0\0\0"), {"a": {"$numberInt": "2"}}),
    ],
    ids=["undefined", "symbol", "DBPointer", "a name that stands twice"],
)
def test_deprecated_types_and_doubled_names_are_normalised_as_documented(raw: bytes, written: Any) -> None:
    assert json.loads(encoder("canonical")(bson.decode(raw, CODEC))) == written
