"""Stored lines become Arrow columns, with equal results whether Arrow's reader can parse them or not."""

import re
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.connector.errors import OptionError
from spark.connector.parsing import parse_lines
from spark.connector.rows import COLUMNS, COLUMNS_WITH_WATERMARK, RowBuilder, columns, event_time_ms
from spark.statistics.changes import CHANGE
from tests.spark import samples
from tests.spark.samples import line

ALL = columns("topic", "offset", "timestamp", "id", "priority", "key", "producer", "watermark", msg=CHANGE)
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("b", pa.bool_()),
        pa.field("l", pa.list_(pa.string())),
        pa.field("o", pa.struct([pa.field("n", pa.int64())])),
    ]
)
WELL_TYPED = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.text()),
        "o": st.none() | st.fixed_dictionaries({"n": st.integers(-9, 9)}),
        "other": st.text() | st.lists(st.integers()),
    },
)
ODD = ["1.5", "9" * 30, '"text"', "[1, [2]]", '{"n": "no", "q": []}', "true", "1e9", "null"]
UNDECODABLE = ["1e400", "9" * 5_000]


@given(st.lists(WELL_TYPED, min_size=1))
def test_values_of_the_requested_types_are_unchanged(objects: list[dict[str, Any]]) -> None:
    names = SCHEMA.names
    found = parse_lines([msgspec.json.encode(one) for one in objects], SCHEMA).to_pylist()
    assert found == [{name: one.get(name) for name in names} for one in objects]


@pytest.mark.parametrize("odd", [*ODD, *UNDECODABLE])
def test_a_value_of_another_type_is_null_and_affects_no_other_value(odd: str) -> None:
    plain = b'{"n":1,"x":2.5,"s":"t","b":false,"l":["e"],"o":{"n":3}}'
    for name in SCHEMA.names:
        lines = [plain] * 500
        lines[321] = b'{"' + name.encode() + b'":' + odd.encode() + b"}"
        found = parse_lines(lines, SCHEMA)
        rows = found.to_pylist()
        assert found.schema == SCHEMA
        assert rows.pop(321).keys() == set(SCHEMA.names)
        assert rows == [msgspec.json.decode(plain)] * 499


@pytest.mark.parametrize("odd", UNDECODABLE)
def test_a_value_that_cannot_be_decoded_is_null_at_any_level_and_spares_its_neighbours(odd: str) -> None:
    kind = pa.struct([pa.field("n", pa.int64()), pa.field("x", pa.float64()), pa.field("l", pa.list_(pa.float64()))])
    text = '{"o":{"n":true,"x":9007199254740993,"l":[2,ODD]}}\n{"o":{"n":3,"note":ODD,"x":ODD,"l":ODD}}'
    lines = text.replace("ODD", odd).encode().splitlines()
    assert parse_lines(lines, pa.schema([pa.field("o", kind)])).to_pylist() == [
        {"o": {"n": None, "x": 2.0**53, "l": [2.0, None]}},
        {"o": {"n": 3, "x": None, "l": None}},
    ]


def test_a_line_nested_too_deeply_is_null() -> None:
    lines = [b'{"n":1}', b'{"n":2,"l":' + b"[" * 5_000 + b"]" * 5_000 + b"}"]
    assert [row["n"] for row in parse_lines(lines, SCHEMA).to_pylist()] == [1, None]


def test_the_columns_are_the_same_whether_the_message_is_parsed_or_not() -> None:
    lines = [line(n, change) for n, change in enumerate(samples.changes(30))]
    parsed, plain = (RowBuilder(schema).batch("t", lines, 17) for schema in (ALL, COLUMNS_WITH_WATERMARK))
    names = [name for name in COLUMNS_WITH_WATERMARK.names if name != "msg"]
    assert parsed.select(names).equals(plain.select(names))
    assert plain.column("priority").to_pylist()[:2] == [0, 3]
    assert RowBuilder(ALL).tick(18).select(names).equals(RowBuilder(COLUMNS_WITH_WATERMARK).tick(18).select(names))


@pytest.mark.parametrize(
    ("at", "expected"), [(5, 5), (-(1 << 63), 0), (1 << 62, 1_700_000_000_000), (None, 1_700_000_000_000)]
)
def test_an_event_time_lies_between_1970_and_the_brokers_time(at: int | None, expected: int) -> None:
    assert event_time_ms(line(0, {"at": at})) == (expected, 1_700_000_000_000)


def test_only_the_requested_columns_are_made() -> None:
    schema = StructType([COLUMNS["msg"], COLUMNS["offset"]])
    batch = RowBuilder(schema).batch("t", [line(5, {"a": 1})], None)
    assert batch.to_pylist() == [{"msg": '{"a":1}', "offset": 5}]


@pytest.mark.parametrize(
    "field",
    [StructField("surprise", StringType()), StructField("offset", StringType()), StructField("msg", LongType())],
)
def test_an_unknown_column_is_refused(field: StructField) -> None:
    with pytest.raises(OptionError, match="it has topic string, offset bigint"):
        RowBuilder(StructType([StructField("priority", IntegerType()), field]))


@pytest.mark.parametrize(
    "kind",
    [TimestampType(), DateType(), DecimalType(9, 2), IntegerType(), FloatType(), MapType(StringType(), StringType())],
)
def test_a_member_of_the_message_with_a_type_that_is_not_read_is_refused(kind: DataType) -> None:
    inner = StructType([StructField("n", LongType()), StructField("when", kind)])
    message = StructType([StructField("op", StringType()), StructField("l", ArrayType(inner))])
    with pytest.raises(
        OptionError, match=rf"msg\.l\[\]\.when cannot be read as {re.escape(kind.simpleString())}: a member"
    ):
        RowBuilder(columns(msg=message))


def test_document_keys_of_every_type_are_passed_over_at_arrows_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse_singly(*_: object) -> None:
        raise AssertionError("a line was read by itself")

    monkeypatch.setattr("spark.connector.parsing._fitted", parse_singly)
    keys = [5, "5", 5.5, None, True, {"$oid": "65f1a2b3c4d5e6f708192a3b"}, [1, "a"]]
    changes = [{"op": "insert", "at": n, "document": {}, "document_key": {"_id": key}} for n, key in enumerate(keys)]
    schema = pa.schema([pa.field("op", pa.string()), pa.field("at", pa.int64())])
    read = parse_lines([msgspec.json.encode(change) for change in changes], schema)
    assert read["at"].to_pylist() == list(range(len(keys)))
