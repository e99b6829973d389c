"""Stored lines as Arrow columns without a Python object a line: Arrow's own JSON reader, which works at C++ speed.

That reader refuses a whole block for one value of another type than asked for (or a member that stands twice, or a
number that does not fit). A refused block is cut into pieces and only the pieces with such a value are read line by
line, as Spark's `from_json` does it: what has another type is null.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import json as arrow_json

__all__ = ["parse_lines"]

_PIECE_LINES = 200
"""So few that one odd line makes few others slow, so many that a piece's own cost of about 0.1 ms is spread."""

_INT64 = range(-(1 << 63), 1 << 63)


def parse_lines(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """Read the members that `schema` names out of JSON objects, one a line; a member that is missing is null.

    `schema` may hold strings, integers, floats, booleans, and lists and structs of these.
    """
    try:
        return _read(lines, schema)
    except pa.ArrowInvalid:
        if len(lines) > _PIECE_LINES:
            starts = range(0, len(lines), _PIECE_LINES)
            return pa.concat_tables(parse_lines(lines[at : at + _PIECE_LINES], schema) for at in starts)
    kind = pa.struct(list(schema))
    return pa.Table.from_pylist([_fitted(msgspec.json.decode(line), kind) for line in lines], schema)


def _read(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    text = b"\n".join(lines)
    return arrow_json.read_json(
        pa.BufferReader(text),
        # Spark runs as many readers as there are cores; one block, since a block's edge may cut a line.
        arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _fitted(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {field.name: _fitted(value.get(field.name), field.type) for field in kind}
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_fitted(element, kind.value_type) for element in value]
    if pa.types.is_string(kind) and value is not None:
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return value if _is_of(value, kind) else None


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    if pa.types.is_integer(kind):
        return isinstance(value, int) and value in _INT64
    return isinstance(value, int | float) and bool(pa.types.is_floating(kind))
