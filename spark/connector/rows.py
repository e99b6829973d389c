"""Convert the broker's lines to Spark rows: the columns, and Arrow record batches of stored events."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, Struct, UnsetType
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.connector.errors import OptionError
from spark.connector.parsing import parse_lines

__all__ = ["COLUMNS", "COLUMNS_WITH_WATERMARK", "RowBuilder", "columns", "event_time_ms", "offset_of"]

COLUMNS = StructType(
    [
        StructField("topic", StringType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("id", StringType()),
        StructField("priority", IntegerType()),
        StructField("key", StringType()),
        StructField("producer", StringType()),
        StructField("msg", StringType()),
    ]
)
"""The columns of ``format("tweetwire")``; `timestamp` is the broker's time, `msg` the payload as JSON text."""

COLUMNS_WITH_WATERMARK = StructType([*COLUMNS.fields, StructField("watermark", LongType())])
"""The columns with the option `watermark`: also the watermark at the time of reading, in milliseconds since 1970 UTC.

A row without an `id` is a tick: it only contains the watermark of the next batch.
"""


class _Row(Struct, gc=False):
    offset: int
    timestamp: int
    id: str
    msg: Raw
    priority: int = 0
    key: str | None = None
    producer: str | None = None


class _Placed(Struct, gc=False):
    offset: int


class _Timed(Struct, gc=False):
    at: int | UnsetType = UNSET


_decode_rows = msgspec.json.Decoder(list[_Row]).decode
_decode_row = msgspec.json.Decoder(_Row).decode
_decode_placed = msgspec.json.Decoder(_Placed).decode
_decode_timed = msgspec.json.Decoder(_Timed).decode


def columns(*names: str, msg: StructType) -> StructType:
    """Return a schema for ``format("tweetwire")`` with only the columns `names`, and with the message parsed as `msg`."""
    return StructType([*(COLUMNS_WITH_WATERMARK[name] for name in names), StructField("msg", msg)])


class RowBuilder:
    """Makes record batches with the columns of `schema`: any of those above, with `msg` as text or as a struct.

    Raises:
        OptionError: `schema` has an unknown column, or a message member of a type that cannot be read.
    """

    def __init__(self, schema: StructType) -> None:
        _check(schema)
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._lines_schema = pa.schema(
            [pa.field(f.name, _LINE_TYPES.get(f.name, f.type)) for f in self._schema if f.name not in _OF_BATCH]
        )
        self._is_parsed = any(isinstance(field.dataType, StructType) for field in schema)

    def batch(self, topic: str, lines: Sequence[bytes], watermark_ms: int | None) -> pa.RecordBatch:
        """Convert stored lines of one topic to a batch."""
        found = _parsed(lines, self._lines_schema) if self._is_parsed else _with_text(lines)
        of_batch = {"topic": topic, "watermark": watermark_ms}
        arrays = [
            pa.repeat(pa.scalar(of_batch[field.name], field.type), len(lines))
            if field.name in of_batch
            else found[field.name].cast(field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def tick(self, watermark_ms: int) -> pa.RecordBatch:
        """Make a batch of one row that only moves the watermark and stands for no event."""
        arrays = [
            pa.array([watermark_ms], field.type) if field.name == "watermark" else pa.nulls(1, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


_OF_BATCH = ("topic", "watermark")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_LINE_TYPES = {"timestamp": pa.int64()}
_MESSAGE_TYPES = (StringType(), LongType(), DoubleType(), BooleanType())


def _check(schema: StructType) -> None:
    known = {field.name: field.dataType for field in COLUMNS_WITH_WATERMARK}
    for field in schema:
        if field.name == "msg" and isinstance(field.dataType, StructType):
            _check_message("msg", field.dataType)
        elif known.get(field.name) != field.dataType:
            raise OptionError(
                f'format("tweetwire") has no column {field.name} {field.dataType.simpleString()}; it has '
                f"{', '.join(f'{name} {kind.simpleString()}' for name, kind in known.items())}, or a struct as msg"
            )


def _check_message(name: str, kind: DataType) -> None:
    match kind:
        case StructType():
            for field in kind:
                _check_message(f"{name}.{field.name}", field.dataType)
        case ArrayType():
            _check_message(f"{name}[]", kind.elementType)
        # For other types, Arrow's reader and `spark.connector.parsing` would return different values, or none.
        case _ if kind not in _MESSAGE_TYPES:
            raise OptionError(
                f"{name} cannot be read as {kind.simpleString()}: a member of a message is string, bigint, double, boolean, "
                "or an array or a struct of these; cast it in the query"
            )


def _parsed(lines: Sequence[bytes], schema: pa.Schema) -> dict[str, pa.Array]:
    table = parse_lines(lines, schema).combine_chunks()
    found = {name: table[name].combine_chunks() for name in table.column_names}
    if "timestamp" in found:
        found["timestamp"] = found["timestamp"].cast(_MILLISECONDS)
    if "priority" in found:
        found["priority"] = found["priority"].fill_null(0)
    return found


def _with_text(lines: Sequence[bytes]) -> dict[str, pa.Array]:
    # Decoding one array takes half as long as decoding line by line.
    rows = _decode_rows(b"[" + b",".join(lines) + b"]")
    return {
        "offset": pa.array([row.offset for row in rows], pa.int64()),
        "timestamp": pa.array([row.timestamp for row in rows], _MILLISECONDS),
        "id": pa.array([row.id for row in rows], pa.string()),
        "priority": pa.array([row.priority for row in rows], pa.int32()),
        "key": pa.array([row.key for row in rows], pa.string()),
        "producer": pa.array([row.producer for row in rows], pa.string()),
        "msg": pa.array([bytes(row.msg) for row in rows], pa.string()),
    }


def event_time_ms(line: bytes) -> tuple[int, int]:
    """Return the event time and the broker's time in ms.

    The event time is the message's `at`, or the broker's time if that is earlier.
    """
    row = _decode_row(line)
    try:
        at = _decode_timed(row.msg).at
    except msgspec.ValidationError:
        at = UNSET
    return row.timestamp if at is UNSET else max(0, min(at, row.timestamp)), row.timestamp


def offset_of(line: bytes) -> int:
    """Return the offset of a stored line."""
    return _decode_placed(line).offset
