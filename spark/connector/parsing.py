"""Parse stored lines to Arrow columns with Arrow's JSON reader, in C++ and without a Python object per line.

That reader refuses a whole block because of one value of an unexpected type, a repeated member or a number that does
not fit. A refused block is cut into pieces, and only the pieces with such a value are read line by line. For these
lines, the rules are those of Spark's `from_json`: a value of another type is null, and so is a value that cannot be
decoded. Examples are a number beyond the range of a double, an integer of thousands of digits, and too deep nesting.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw
from pyarrow import json as arrow_json

__all__ = ["parse_lines"]

_PIECE_LINES = 200
"""The number of lines in a piece.

Small enough that one odd line slows down few others; large enough to spread a piece's fixed cost of about 0.1 ms.
"""

_INT64 = range(-(1 << 63), 1 << 63)

_decode_struct = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_bool = msgspec.json.Decoder(bool).decode
_decode_int = msgspec.json.Decoder(int).decode
_decode_float = msgspec.json.Decoder(float).decode
_decode_any = msgspec.json.Decoder().decode


def parse_lines(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """Read the members that `schema` names from JSON objects, one per line; a missing member is null.

    `schema` may contain strings, integers, floats, booleans, and lists and structs of these.
    """
    try:
        return _read(lines, schema)
    except pa.ArrowInvalid:
        if len(lines) > _PIECE_LINES:
            starts = range(0, len(lines), _PIECE_LINES)
            return pa.concat_tables(parse_lines(lines[at : at + _PIECE_LINES], schema) for at in starts)
    kind = pa.struct(list(schema))
    return pa.Table.from_pylist([_fitted(line, kind) or {} for line in lines], schema)


def _read(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    text = b"\n".join(lines)
    return arrow_json.read_json(
        pa.BufferReader(text),
        # Use no threads, because Spark runs as many readers as there are cores. Use one block, because a block's end may cut a
        # line.
        arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _fitted(text: bytes | Raw, kind: pa.DataType) -> Any:
    # Decode level by level, so that a value that cannot be decoded does not affect the values beside it.
    try:
        if pa.types.is_struct(kind):
            members = _decode_struct(text)
            return {field.name: _fitted(members.get(field.name, b"null"), field.type) for field in kind}
        if pa.types.is_list(kind):
            return [_fitted(element, kind.value_type) for element in _decode_list(text)]
        return _leaf(text, kind)
    except (ValueError, RecursionError):
        return None


def _leaf(text: bytes | Raw, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return _decode_bool(text)
    if pa.types.is_floating(kind):
        return _decode_float(text)
    if pa.types.is_integer(kind):
        number = _decode_int(text)
        return number if number in _INT64 else None
    value = _decode_any(text)
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
