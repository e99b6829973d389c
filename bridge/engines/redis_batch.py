"""A batch of records in columns, as the script of the Redis engine takes it. No I/O.

Most records of a batch have the same fields, and many fields have the same value in all of them. A column is one text for all
records, or a list with a text for each. So the script does not make a table or the same text again for each record.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from bridge.central import Record

__all__ = ["DATA", "packed"]

DATA: Final = "data"
"""The field of the payload."""

Column: TypeAlias = str | Sequence[str | None]

_pack = msgspec.msgpack.Encoder().encode


def packed(records: Sequence[Record]) -> bytes:
    """Return a batch in MessagePack: the ids, the names of the columns, the columns, and whether some records lack a field.

    An id is ``<time>-<offset>``, or the next possible id where that is not after the id before it.
    """
    names, columns, is_sparse = _columns(records)
    return _pack((_ids(records), names, columns, is_sparse))


def _ids(records: Sequence[Record]) -> list[str]:
    ids: list[str] = []
    # There is no id 0-0.
    ms = number = 0
    for record in records:
        if record.timestamp > ms:
            ms, number = record.timestamp, record.offset
        else:
            # The same millisecond, or a clock that was set back.
            number = max(number + 1, record.offset)
        ids.append(f"{ms}-{number}")
    return ids


def _columns(records: Sequence[Record]) -> tuple[list[str], list[Column], bool]:
    rows = [record.fields for record in records]
    # The decoder in Redis knows no bytes of MessagePack, only text.
    data = [None if record.value is None else record.value.decode() for record in records]
    count = len(records)
    try:
        turned = list(zip(*rows, strict=True))
    except ValueError:
        return _sparse(rows, data)
    if None in data or not all(column.count(column[0]) == count for column in turned[::2]):
        return _sparse(rows, data)
    columns: list[Column] = [data]
    for values in turned[1::2]:
        is_constant = values[0] == values[-1] and values.count(values[0]) == count
        columns.append(values[0] if is_constant else values)
    return [DATA, *(column[0] for column in turned[::2])], columns, False


def _sparse(rows: Sequence[Sequence[str]], data: Sequence[str | None]) -> tuple[list[str], list[Column], bool]:
    """Return the columns of records that have different fields. A missing field is None."""
    columns: dict[str, list[str | None]] = {DATA: list(data)}
    for at, row in enumerate(rows):
        for name, value in zip(row[::2], row[1::2], strict=True):
            if name not in columns:
                columns[name] = [None] * len(rows)
            columns[name][at] = value
    return list(columns), list(columns.values()), True
