"""The sink: rows of a query as events of a topic, each once, whatever crashes.

What makes it exact: Spark runs a batch again until its commit is written down, always with the same number. The rows
of a batch are gathered from the tasks, ordered, and published by one idempotent producer named after the query's id
(which lives in the checkpoint), with sequences in the batch's own share. Published again, they are duplicates to the
broker. This needs the batch to have the same rows each time, which the source's offsets and the state store give.
A row that the broker refuses fails the batch, again and again until it is taken (`spark.left_out`).
With the option `totals` the events also carry sums, which go on from those in the topic (`spark.totals`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import IntegralType, StringType, StructType

from broker import Event, SyncClient
from spark.errors import OptionError, RowError, TooManyRowsError
from spark.left_out import left_out
from spark.link import Link
from spark.options import WriteOptions
from spark.totals import newest_totals, with_totals
from spark.worker_process import keep_imports

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
"""A batch's share of sequence numbers; with it, JSON's 2^53 lasts for eight billion batches."""

_COLUMNS = {"id": StringType, "msg": StringType, "key": StringType, "parent": StringType, "priority": IntegralType}


class StagedRow(Struct, array_like=True, frozen=True):
    """A row that waits for its batch's commit."""

    id: str
    msg: str
    priority: int = 0
    key: str | None = None
    parent: str | None = None


class Staged(WriterCommitMessage):
    """What one task hands to the commit: its rows and the query they belong to."""

    def __init__(self, rows: list[StagedRow], query_id: str | None) -> None:
        self.rows = rows
        self.query_id = query_id


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Publishes each micro-batch once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Gather a task's rows; nothing is published before the whole batch is there."""
        keep_imports()
        return stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Publish the batch. Raises TooManyRowsError, or what the broker refuses with."""
        keep_imports()
        rows = gathered(messages)
        if len(rows) > ROWS_PER_BATCH_MAX:
            raise TooManyRowsError(len(rows), ROWS_PER_BATCH_MAX)
        if rows:
            publish(self._options, rows, self._producer(messages), batchId * ROWS_PER_BATCH_MAX)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Do nothing: what was staged was not published."""

    def _producer(self, messages: Sequence[WriterCommitMessage | None]) -> str:
        if self._options.producer is not None:
            return self._options.producer
        ids = {message.query_id for message in messages if isinstance(message, Staged) and message.query_id}
        if len(ids) != 1:
            raise OptionError("Spark did not tell the query's id; set the option producer")
        return f"spark.{ids.pop()}"


def check_schema(schema: StructType) -> None:
    """See that the rows can become events: `id` and `msg`, and maybe `priority`, `key`, `parent`. Raises OptionError."""
    types = {field.name: field.dataType for field in schema.fields}
    wrong = [name for name, kind in types.items() if name not in _COLUMNS or not isinstance(kind, _COLUMNS[name])]
    if wrong or not {"id", "msg"} <= types.keys():
        raise OptionError(
            'format("tweetwire") publishes the columns id and msg (JSON text), and maybe priority (an integer), key and '
            f"parent; these rows have {', '.join(f'{name} {kind.simpleString()}' for name, kind in types.items())}"
        )


def stage(batches: Iterable[pa.RecordBatch]) -> Staged:
    """Take the rows of one task. Raises RowError."""
    rows = [StagedRow(**_present(row)) for batch in batches for row in batch.to_pylist()]
    context = TaskContext.get()
    return Staged(rows, context.getLocalProperty("sql.streaming.queryId") if context else None)


def gathered(messages: Iterable[WriterCommitMessage | None]) -> list[StagedRow]:
    """Put the rows of all tasks in the one order that a batch has however its tasks ran."""
    rows = [row for message in messages if isinstance(message, Staged) for row in message.rows]
    return sorted(rows, key=lambda row: (row.id, row.msg))


def publish(options: WriteOptions, rows: Sequence[StagedRow], producer: str | None, sequence: int) -> None:
    """Publish `rows` in their order; with a producer's name the first of them has `sequence`, and so on."""
    events = [_event(row, producer, sequence + place) for place, row in enumerate(rows)]
    with Link(options.broker, name="spark-sink", retry_s=options.retry_s) as link:
        receipts = link.call(lambda client: client.publish_many(options.topic, _summed(client, options, events)))
        if producer is not None and any(receipt.is_duplicate for receipt in receipts):
            link.call(lambda client: _publish_left_out(client, options, events, producer))


def _publish_left_out(client: SyncClient, options: WriteOptions, events: list[Event], producer: str) -> None:
    """Publish what was refused at an earlier try, each before the next is sent. Raises Refusal as long as that lasts."""
    for event in _summed(client, options, left_out(client, options.topic, events, producer)):
        client.publish(options.topic, replace(event, producer=f"{producer}.again"))


def _summed(client: SyncClient, options: WriteOptions, events: list[Event]) -> list[Event]:
    if options.totals is None:
        return events
    # Asked on the connection that publishes, each time anew: another one may have stored a part of the batch.
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
