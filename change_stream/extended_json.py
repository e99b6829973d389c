"""Write BSON values as JSON, in three modes.

- plain: for programs without a BSON library. Dates are ISO 8601 with milliseconds, ObjectId is hexadecimal, Binary is
  base64, UUID has its usual text. Int64 beyond ±2^53 and Decimal128 are strings, since most JSON readers would round them.
  NaN and the infinities are null, because JSON cannot express them.
- relaxed and canonical: MongoDB Extended JSON v2. Canonical keeps every type, so the same BSON can be restored from it.
"""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import msgspec
from bson import json_util
from bson.binary import Binary, UuidRepresentation
from bson.code import Code
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
from bson.timestamp import Timestamp

__all__ = ["CODEC", "RAW_CODEC", "JsonMode", "encoder", "format_date", "plain"]

JsonMode = Literal["plain", "canonical", "relaxed"]
Encode = Callable[[Any], bytes]

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    # MongoDB's dates reach beyond Python's years 1 to 9999.
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    uuid_representation=UuidRepresentation.STANDARD,
)
"""How changes are decoded in every mode."""

RAW_CODEC: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
"""How batches are received: documents stay BSON, so that an `_id` of any type is sent back unchanged."""

_EXACT_IN_DOUBLE = 1 << 53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_PER_400_YEARS = 146_097 * 86_400_000


def encoder(mode: JsonMode) -> Encode:
    """Return the function that encodes a value with BSON types as JSON in `mode`."""
    if mode == "plain":
        return msgspec.json.Encoder(enc_hook=plain).encode
    options = json_util.CANONICAL_JSON_OPTIONS if mode == "canonical" else json_util.RELAXED_JSON_OPTIONS
    options = options.with_options(
        uuid_representation=UuidRepresentation.STANDARD, datetime_conversion=DatetimeConversion.DATETIME_MS
    )

    def encode(value: Any) -> bytes:
        return json_util.dumps(value, json_options=options, ensure_ascii=False, separators=(",", ":")).encode()

    return encode


def plain(value: Any) -> Any:
    """Replace a BSON value that JSON cannot express. Raises TypeError if the type is not a BSON type."""
    write = _PLAIN.get(type(value))
    if write is None:
        raise TypeError(f"not a BSON type: {type(value).__name__}")
    return write(value)


def format_date(milliseconds: int) -> str:
    """Write milliseconds since 1970 UTC as ISO 8601; years outside 0–9999 have a sign and at least six digits."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_to_the_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=4096)
def _to_the_second(seconds: int) -> str:
    try:
        return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    except OverflowError:
        # Python knows the years 1 to 9999. The calendar repeats every 400 years, so a near year stands for a far one.
        cycles, rest = divmod(seconds * 1000, _MS_PER_400_YEARS)
        near = _EPOCH + timedelta(milliseconds=rest)
        year = near.year + 400 * cycles
        return f"{year:0=+7d}{near:-%m-%dT%H:%M:%S}" if not 0 <= year <= 9999 else f"{year:04d}{near:-%m-%dT%H:%M:%S}"


def _int64(value: Int64) -> int | str:
    number = int(value)
    return number if -_EXACT_IN_DOUBLE <= number <= _EXACT_IN_DOUBLE else str(number)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    Int64: _int64,
    DatetimeMS: lambda value: format_date(int(value)),
    ObjectId: str,
    Decimal128: str,
    Binary: bytes,
    uuid.UUID: str,
    Timestamp: lambda value: {"t": value.time, "i": value.inc},
    Regex: lambda value: f"/{value.pattern}/{_flags(value.flags)}",
    Code: lambda value: {"code": str(value), "scope": value.scope} if value.scope is not None else str(value),
    DBRef: lambda value: dict(value.as_doc()),
    MinKey: lambda _: "MinKey",
    MaxKey: lambda _: "MaxKey",
}


def _flags(flags: int) -> str:
    return "".join(letter for letter, bit in (("i", 2), ("m", 8), ("s", 16), ("u", 32), ("x", 64)) if flags & bit)
