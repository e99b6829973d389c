"""Topics as static tables: the reader and the writer of ``format("tweetwire")`` for batch queries."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark.connector.errors import DataLossError, OptionError
from spark.connector.link import SparkLink
from spark.connector.options import ReadOptions, WriteOptions
from spark.connector.progress import Head
from spark.connector.rows import RowBuilder
from spark.connector.sink import Staged, check_schema, gathered, publish, stage

__all__ = ["Bounds", "TopicBatchReader", "TopicBatchWriter"]


class Bounds:
    """The bounds from pushed filters: `first` ≤ offset ≤ `last`, `since` ≤ timestamp < `until`.

    None means that there is no bound.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.since: datetime | None = None
        self.until: datetime | None = None

    def narrow(self, condition: Filter) -> None:
        """Apply one filter; a filter that does not bound `offset` or `timestamp` changes nothing."""
        match condition:
            case EqualTo(("offset",), int(value)):
                self._at_least(value)
                self._at_most(value)
            case GreaterThanOrEqual(("offset",), int(value)):
                self._at_least(value)
            case GreaterThan(("offset",), int(value)):
                self._at_least(value + 1)
            case LessThanOrEqual(("offset",), int(value)):
                self._at_most(value)
            case LessThan(("offset",), int(value)):
                self._at_most(value - 1)
            case In(("offset",), values) if values and all(isinstance(value, int) for value in values):
                self._at_least(min(values))
                self._at_most(max(values))
            case EqualTo(("timestamp",), datetime() as moment):
                self._from(moment)
                self._up_to(moment)
            case GreaterThanOrEqual(("timestamp",), datetime() as moment) | GreaterThan(
                ("timestamp",), datetime() as moment
            ):
                self._from(moment)
            case LessThanOrEqual(("timestamp",), datetime() as moment) | LessThan(("timestamp",), datetime() as moment):
                self._up_to(moment)

    def _from(self, moment: datetime) -> None:
        moment = _in_utc(moment)
        self.since = max(self.since or moment, moment)

    def _up_to(self, moment: datetime) -> None:
        # The broker's times are whole milliseconds; Spark's are not.
        moment = _in_utc(moment) + timedelta(milliseconds=1)
        self.until = min(self.until or moment, moment)

    def _at_least(self, offset: int) -> None:
        self.first = offset if self.first is None else max(self.first, offset)

    def _at_most(self, offset: int) -> None:
        self.last = offset if self.last is None else min(self.last, offset)


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Slice(InputPartition):
    """The offsets of a topic from `start` up to, not including, `end`."""

    def __init__(self, topic: str, start: int, end: int) -> None:
        self.topic = topic
        self.start = start
        self.end = end


class TopicBatchReader(DataSourceReader):
    """Reads the events that its topics hold when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows = RowBuilder(schema)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 — Spark's name
        """Narrow the offsets. Spark still applies every filter, since a bound may let more rows through than its filter."""
        for condition in filters:
            self._bounds.narrow(condition)
            yield condition

    def partitions(self) -> Sequence[InputPartition]:
        """Split the topics into ranges that are read in parallel."""
        with SparkLink(self._options.broker, retry_s=self._options.retry_s) as link:
            heads = link.heads(self._options.topics)
            return [
                part for topic, head in heads.items() for part in self._slices(topic, *self._span(link, topic, head))
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches."""
        # If there are no partitions, Spark calls this once without a value.
        if isinstance(partition, Slice):
            with SparkLink(self._options.broker, retry_s=self._options.retry_s) as link:
                chunks = link.whole_chunks if self._options.fail_on_data_loss else link.chunks
                for lines in chunks(partition.topic, partition.start, partition.end):
                    yield self._rows.batch(partition.topic, lines, None)

    def _span(self, link: SparkLink, topic: str, head: Head) -> tuple[int, int]:
        start, end, bounds = self._start(link, topic, head), head.next, self._bounds
        if bounds.first is not None:
            start = max(start, bounds.first)
        if bounds.last is not None:
            end = min(end, bounds.last + 1)
        if bounds.since is not None:
            start = max(start, link.offset_at(topic, bounds.since))
        if bounds.until is not None:
            end = min(end, link.offset_at(topic, bounds.until))
        return start, max(start, end)

    def _start(self, link: SparkLink, topic: str, head: Head) -> int:
        match self._options.start:
            case "earliest":
                return head.earliest
            case "latest":
                return head.next
            case int(offset):
                if len(self._options.topics) > 1:
                    raise OptionError(f"from={offset}: an offset belongs to one topic; give a time for several")
                if offset < head.earliest and self._options.fail_on_data_loss:
                    raise DataLossError(topic, offset, head.earliest, head.next)
                return max(offset, head.earliest)
            case moment:
                return link.offset_at(topic, moment)

    def _slices(self, topic: str, start: int, end: int) -> list[InputPartition]:
        count = min(self._options.ranges_max, end - start)
        edges = [start + (end - start) * part // max(count, 1) for part in range(count + 1)]
        return [Slice(topic, low, high) for low, high in pairwise(edges)]


class TopicBatchWriter(DataSourceArrowWriter):
    """Publishes the rows of a static table once all are computed. With the option `producer`, each row is stored once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Collect a task's rows."""
        return stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the rows of all tasks."""
        rows = gathered(messages)
        if rows:
            publish(self._options, rows, self._options.producer, 0)

    def abort(self, messages: Sequence[Any]) -> None:
        """Do nothing: staged rows have not been published."""
