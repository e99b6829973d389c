"""Rows of Spark from the broker's lines: the columns, and how stored events become Arrow record batches."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, Struct, UnsetType
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

__all__ = ["COLUMNS", "COLUMNS_WITH_WATERMARK", "event_time_ms", "record_batch", "tick_batch"]

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
"""What a row of ``format("tweetwire")`` holds; `timestamp` is the broker's, `msg` the payload as JSON text."""

COLUMNS_WITH_WATERMARK = StructType([*COLUMNS.fields, StructField("watermark", LongType())])
"""With the option `watermark`: also the watermark in force when the row is read, in milliseconds since 1970 UTC.

A row without an `id` is a tick: it carries nothing but the watermark that holds from the next batch on.
"""

_ARROW = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("id", pa.string()),
        pa.field("priority", pa.int32()),
        pa.field("key", pa.string()),
        pa.field("producer", pa.string()),
        pa.field("msg", pa.string()),
    ]
)
_ARROW_WITH_WATERMARK = _ARROW.append(pa.field("watermark", pa.int64()))


class _Row(Struct, gc=False):
    offset: int
    timestamp: int
    id: str
    msg: Raw
    priority: int = 0
    key: str | None = None
    producer: str | None = None


class _Timed(Struct, gc=False):
    at: int | UnsetType = UNSET


_decode_rows = msgspec.json.Decoder(list[_Row]).decode
_decode_row = msgspec.json.Decoder(_Row).decode
_decode_timed = msgspec.json.Decoder(_Timed).decode


def record_batch(topic: str, lines: Sequence[bytes], watermark_ms: int | None) -> pa.RecordBatch:
    """Turn a topic's stored lines into one batch, with the column `watermark` unless it is None."""
    # One decode of one array costs half of a decode a line.
    rows = _decode_rows(b"[" + b",".join(lines) + b"]")
    arrays = [
        pa.repeat(pa.scalar(topic), len(rows)),
        pa.array([row.offset for row in rows], pa.int64()),
        pa.array([row.timestamp * 1000 for row in rows], pa.timestamp("us", tz="UTC")),
        pa.array([row.id for row in rows], pa.string()),
        pa.array([row.priority for row in rows], pa.int32()),
        pa.array([row.key for row in rows], pa.string()),
        pa.array([row.producer for row in rows], pa.string()),
        pa.array([bytes(row.msg) for row in rows], pa.string()),
    ]
    if watermark_ms is None:
        return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
    arrays.append(pa.repeat(pa.scalar(watermark_ms, pa.int64()), len(rows)))
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_WITH_WATERMARK)


def tick_batch(watermark_ms: int) -> pa.RecordBatch:
    """Make the one row that moves the watermark and stands for no event."""
    arrays = [pa.nulls(1, field.type) for field in _ARROW]
    arrays.append(pa.array([watermark_ms], pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_WITH_WATERMARK)


def event_time_ms(line: bytes) -> tuple[int, int]:
    """Give a stored event's time (its message's `at`, at most the broker's time) and the broker's, in milliseconds."""
    row = _decode_row(line)
    try:
        at = _decode_timed(row.msg).at
    except msgspec.ValidationError:
        at = UNSET
    return row.timestamp if at is UNSET else min(at, row.timestamp), row.timestamp
