"""Write stored events as JSON lines, CSV or Parquet, in bounded memory.

CSV and Parquet have the same columns. `timestamp` is a time in UTC; `headers` and `msg` are JSON as text.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec
from msgspec import Raw, Struct

from tweetwire.runtime.extras import needs_extra
from tweetwire.runtime.wording import iso_time

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "EventFormat", "EventWriter", "event_writer"]

EventFormat = Literal["json", "csv", "parquet"]

COLUMNS: Final = ("topic", "offset", "timestamp", "id", "priority", "key", "parent", "headers", "msg")
GROUP_EVENTS: Final = 100_000
GROUP_BYTES: Final = 64 << 20
"""The limits of a row group of Parquet. It ends at the first that is reached, since its rows stay in memory until then."""


class EventWriter(Protocol):
    """Writes events to an open file."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Write stored events. Raises OSError."""
        ...

    def close(self) -> None:
        """Write what is still in memory, and the end of the file. Raises OSError."""
        ...


class _Row(Struct):
    topic: str
    offset: int
    timestamp: int
    id: str
    priority: int
    msg: Raw
    key: str | None = None
    parent: str | None = None
    headers: Raw = Raw()

    @property
    def headers_text(self) -> str | None:
        return bytes(self.headers).decode() or None

    @property
    def msg_text(self) -> str:
        return bytes(self.msg).decode()


_decode = msgspec.json.Decoder(_Row).decode


def event_writer(kind: EventFormat, file: IO[bytes]) -> EventWriter:
    """Return the writer of a format. Ends the process with one sentence if the format needs a missing package."""
    return _WRITERS[kind](file)


class _JsonWriter:
    """Writes each event as the line that the broker stores."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, lines: Sequence[bytes]) -> None:
        self._file.write(b"\n".join(lines) + b"\n")

    def close(self) -> None:
        self._file.flush()


class _CsvWriter:
    """Writes a head line with the columns, and a line for each event."""

    def __init__(self, file: IO[bytes]) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        self._csv = csv.writer(self._text)
        self._csv.writerow(COLUMNS)

    def write(self, lines: Sequence[bytes]) -> None:
        self._csv.writerows(self._rows(lines))

    def close(self) -> None:
        self._text.flush()
        # The caller closes the file.
        self._text.detach()

    def _rows(self, lines: Iterable[bytes]) -> Iterator[Sequence[Any]]:
        for row in map(_decode, lines):
            when = iso_time(row.timestamp)
            yield row.topic, row.offset, when, row.id, row.priority, row.key, row.parent, row.headers_text, row.msg_text


class _ParquetWriter:
    """Writes a row group for about `GROUP_EVENTS` events."""

    def __init__(self, file: IO[bytes]) -> None:
        with needs_extra("--format parquet", "spark"):
            import pyarrow  # noqa: PLC0415 — imported here, because it takes long and no other command needs it
            from pyarrow import parquet  # noqa: PLC0415
        self._arrow = pyarrow
        self._schema: pa.Schema = pyarrow.schema(
            [
                pyarrow.field("topic", pyarrow.string(), nullable=False),
                pyarrow.field("offset", pyarrow.int64(), nullable=False),
                pyarrow.field("timestamp", pyarrow.timestamp("ms", tz="UTC"), nullable=False),
                pyarrow.field("id", pyarrow.string(), nullable=False),
                pyarrow.field("priority", pyarrow.uint8(), nullable=False),
                pyarrow.field("key", pyarrow.string()),
                pyarrow.field("parent", pyarrow.string()),
                pyarrow.field("headers", pyarrow.string()),
                pyarrow.field("msg", pyarrow.string(), nullable=False),
            ]
        )
        self._parquet = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[_Row] = []
        self._bytes = 0

    def write(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._rows.append(_decode(line))
            self._bytes += len(line)
            if len(self._rows) >= GROUP_EVENTS or self._bytes >= GROUP_BYTES:
                self._write_group()

    def close(self) -> None:
        if self._rows:
            self._write_group()
        self._parquet.close()

    def _write_group(self) -> None:
        rows = self._rows
        columns = [
            *([getattr(row, name) for row in rows] for name in COLUMNS[:-2]),
            [row.headers_text for row in rows],
            [row.msg_text for row in rows],
        ]
        arrays = [self._arrow.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._parquet.write_table(self._arrow.table(arrays, schema=self._schema), row_group_size=len(rows))
        self._rows, self._bytes = [], 0


_WRITERS: Final[Mapping[EventFormat, Callable[[IO[bytes]], EventWriter]]] = {
    "json": _JsonWriter,
    "csv": _CsvWriter,
    "parquet": _ParquetWriter,
}
