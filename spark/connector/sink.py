"""The sink: publishes the rows of a query as events of a topic, each once, whichever process crashes.

Spark runs a batch again, always with the same number, until its commit is stored. The rows of a batch are collected from the
tasks, sorted, and published by one idempotent producer. The producer is named after the query's id, which is stored in the
checkpoint. Each batch has its own range of sequences, so the broker recognises rows that are published again as duplicates.
This requires that a batch has the same rows each time, which the source's offsets and the state store ensure.

A row that the broker refuses fails the batch at each try, until the broker accepts it (`spark.connector.left_out`).
With the option `totals` the events also carry sums, which continue those in the topic (`spark.connector.totals`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import IntegralType, StringType, StructType

from spark.connector.errors import OptionError, RowError, TooManyRowsError
from spark.connector.left_out import left_out
from spark.connector.link import SparkLink
from spark.connector.options import WriteOptions
from spark.connector.totals import newest_totals, with_totals
from spark.connector.worker_process import keep_imports
from tweetwire import Event, SyncClient

__all__ = [
    "ROWS_PER_BATCH_MAX",
    "Staged",
    "StagedRow",
    "TopicStreamWriter",
    "check_schema",
    "gathered",
    "publish",
    "stage",
]

ROWS_PER_BATCH_MAX = 1 << 20
"""The number of sequences for each batch. JSON's limit of 2^53 then suffices for eight billion batches."""

_COLUMNS = {"id": StringType, "msg": StringType, "key": StringType, "parent": StringType, "priority": IntegralType}


class StagedRow(Struct, array_like=True, frozen=True):
    """A row that waits for its batch's commit."""

    id: str
    msg: str
    priority: int = 0
    key: str | None = None
    parent: str | None = None


class Staged(WriterCommitMessage):
    """The result of one task: its rows and the id of their query."""

    def __init__(self, rows: list[StagedRow], query_id: str | None) -> None:
        self.rows = rows
        self.query_id = query_id


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Publishes each micro-batch once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Collect a task's rows; nothing is published before the whole batch is computed."""
        keep_imports()
        return stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Publish the batch. Raises TooManyRowsError, and the broker's Refusal."""
        keep_imports()
        rows = gathered(messages)
        if len(rows) > ROWS_PER_BATCH_MAX:
            raise TooManyRowsError(len(rows), ROWS_PER_BATCH_MAX)
        if rows:
            publish(self._options, rows, self._producer(messages), batchId * ROWS_PER_BATCH_MAX)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Do nothing: staged rows have not been published."""

    def _producer(self, messages: Sequence[WriterCommitMessage | None]) -> str:
        if self._options.producer is not None:
            return self._options.producer
        ids = {message.query_id for message in messages if isinstance(message, Staged) and message.query_id}
        if len(ids) != 1:
            raise OptionError("Spark did not pass the query's id; set the option producer")
        return f"spark.{ids.pop()}"


def check_schema(schema: StructType) -> None:
    """Check that rows can become events: `id` and `msg`, optionally `priority`, `key`, `parent`. Raises OptionError."""
    types = {field.name: field.dataType for field in schema.fields}
    wrong = [name for name, kind in types.items() if name not in _COLUMNS or not isinstance(kind, _COLUMNS[name])]
    if wrong or not {"id", "msg"} <= types.keys():
        raise OptionError(
            'format("tweetwire") publishes the columns id and msg (JSON text), and optionally priority (an integer), key and '
            f"parent; these rows have {', '.join(f'{name} {kind.simpleString()}' for name, kind in types.items())}"
        )


def stage(batches: Iterable[pa.RecordBatch]) -> Staged:
    """Collect the rows of one task. Raises RowError."""
    rows = [StagedRow(**_present(row)) for batch in batches for row in batch.to_pylist()]
    context = TaskContext.get()
    return Staged(rows, context.getLocalProperty("sql.streaming.queryId") if context else None)


def gathered(messages: Iterable[WriterCommitMessage | None]) -> list[StagedRow]:
    """Return the rows of all tasks in an order that does not depend on the tasks."""
    rows = [row for message in messages if isinstance(message, Staged) for row in message.rows]
    return sorted(rows, key=lambda row: (row.id, row.msg))


def publish(options: WriteOptions, rows: Sequence[StagedRow], producer: str | None, sequence: int) -> None:
    """Publish `rows` in order. With a `producer`, the rows have the sequences `sequence`, `sequence` + 1, and so on."""
    events = [_event(row, producer, sequence + place) for place, row in enumerate(rows)]
    with SparkLink(options.broker, name="spark-sink", retry_s=options.retry_s) as link:
        receipts = link.call(lambda client: client.publish_many(options.topic, _summed(client, options, events)))
        if producer is not None and any(receipt.is_duplicate for receipt in receipts):
            link.call(lambda client: _publish_left_out(client, options, events, producer))


def _publish_left_out(client: SyncClient, options: WriteOptions, events: list[Event], producer: str) -> None:
    """Publish, one by one, events that were refused at an earlier try. Raises Refusal if one of them is refused again."""
    for event in _summed(client, options, left_out(client, options.topic, events, producer)):
        client.publish(options.topic, replace(event, producer=f"{producer}.again"))


def _summed(client: SyncClient, options: WriteOptions, events: list[Event]) -> list[Event]:
    if options.totals is None:
        return events
    # Read the totals again at each try, on the publishing connection, because an earlier try may have stored a part of the
    # batch.
    return with_totals(events, options.totals, newest_totals(client, options.topic, options.totals))


def _present(row: dict[str, Any]) -> dict[str, Any]:
    present = {name: value for name, value in row.items() if value is not None}
    if not present.keys() >= {"id", "msg"}:
        raise RowError(row)
    return present


def _event(row: StagedRow, producer: str | None, sequence: int) -> Event:
    return Event(
        id=row.id,
        msg=Raw(row.msg.encode()),
        priority=row.priority,
        key=UNSET if row.key is None else row.key,
        parent=UNSET if row.parent is None else row.parent,
        producer=UNSET if producer is None else producer,
        sequence=UNSET if producer is None else sequence,
    )
