"""``format("tweetwire")``: the broker's topics as a Spark source and sink, for streams and for batches.

In a session of one's own, `register` makes it known; PYSPARK_PYTHON has to name a Python that has this package.

Reading takes the options `broker`, `user` and `token` (where the broker has users), `tls` (true) or the PEM files
`tlsCa`, `tlsCert` and `tlsKey` (where it speaks TLS; each executor needs them, too), `topic` (several parted by commas),
`from`, `maxRecordsPerTrigger`, `paced` (true only for triggers of less than a second: batches are so small that none takes
long, see `spark.pace`), `ranges`, `failOnDataLoss` and `retry`; with `watermark` the source also says how far event time has
come (`spark.progress`), for which it takes `window` (10 s; the watermark moves by whole ones, so it is the length of your
own windows), `idle`, `every` and `early` (true only where spark.sql.streaming.noDataMicroBatches.enabled is false: a window
then closes with the batch that waits for its end, whatever maxRecordsPerTrigger is). Rows with a null `id` are then ticks
that move the watermark and no events: drop them (`where id is not null`) before a sink of your own. With a schema of one's
own there are only the columns that it names, and where its `msg` is a struct (of string, bigint, double, boolean, and arrays
and structs of these), messages come parsed (`spark.parsing`), for less than `from_json` costs.

Writing takes `broker`, `user`, `token`, those of TLS, `topic`, `producer`, `retry` and `totals`. A `producer` is a name for
one write, or for one query with its checkpoint: what comes later under the same name, with a new checkpoint too, is taken
for a repetition and not stored. The rows of a micro-batch are published in the order of `id` and then `msg`, whatever order
they had.
"""

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from broker import BrokerError
from spark.batch import TopicBatchReader, TopicBatchWriter
from spark.errors import DataLossError, OptionError
from spark.link import Link, may_pass
from spark.options import ReadOptions, WriteOptions
from spark.pace import Pace
from spark.progress import Head, Position, TopicPosition, decide, is_short, share_rows
from spark.rows import COLUMNS, COLUMNS_WITH_WATERMARK, Rows
from spark.sink import TopicStreamWriter
from spark.worker_process import keep_imports

__all__ = ["TopicStreamReader", "TweetwireSource", "register"]

_ROWS_PER_RANGE_MIN = 4_000
"""A smaller range costs more as a task of its own than reading it in turn."""


def register(session: SparkSession) -> None:
    """Make ``format("tweetwire")`` known to a session, which may be one's own."""
    # Without this, Spark refuses each batch read of a source that can take filters.
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(TweetwireSource)


class TweetwireSource(DataSource):
    """The data source that a session registers."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return "tweetwire"

    def schema(self) -> StructType:
        """Give the columns; with the option `watermark` there is one more."""
        return COLUMNS_WITH_WATERMARK if "watermark" in self.options else COLUMNS

    def reader(self, schema: StructType) -> TopicBatchReader:
        """Read what the topics hold now."""
        return TopicBatchReader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> "TopicStreamReader":  # noqa: N802 — Spark's name
        """Follow the topics."""
        return TopicStreamReader(ReadOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TopicBatchWriter:
        """Publish the rows of a batch. Raises OptionError for the mode overwrite."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode append")
        return TopicBatchWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802 — Spark's name
        """Publish the rows of a query, each once."""
        keep_imports()
        return TopicStreamWriter(WriteOptions.parse(self.options), schema)


class Range(InputPartition):
    """Offsets `start` up to, not including, `end` of a topic; then a tick, where `tick_ms` is the next watermark."""

    def __init__(self, topic: str, start: int, end: int, watermark_ms: int | None, tick_ms: int | None = None) -> None:
        self.topic = topic
        self.start = start
        self.end = end
        self.watermark_ms = watermark_ms
        self.tick_ms = tick_ms


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and reads their ranges on the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows = Rows(schema)
        self._link: Link | None = None
        self._last_batch_ms = 0
        self._pace = Pace(options.rows_max) if options.is_paced else None
        self._target: dict[str, Head] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind: executors make their own."""
        return {**self.__dict__, "_link": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Say where a new query begins. Raises OptionError for an offset where there are several topics."""
        with self._patient_link() as link:
            heads = link.heads(self._options.topics)
            return Position({topic: TopicPosition(self._first(link, topic, heads[topic])) for topic in heads}).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """Bound a batch by `maxRecordsPerTrigger`."""
        return ReadMaxRows(self._options.rows_max)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Say where the next batch ends; `start` itself while there is nothing to do or no broker."""
        position = self._own(start)
        now_ms = time.time_ns() // 1_000_000
        if self._pace:
            self._pace.end(now_ms)
        try:
            heads = self._target or self._linked().heads(self._options.topics)
            reached = self._reached(position, heads, self._bound(limit))
        except BrokerError as error:
            if not may_pass(error):
                raise
            return dict(start)
        end = self._decided(position, reached, heads, now_ms)
        if end.topics != position.topics:
            self._last_batch_ms = now_ms
            if self._pace:
                self._pace.begin(now_ms)
        return end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — Spark's name
        """Take what the topics hold now as the end of the query."""
        self.stop()
        self._link = self._patient_link()
        self._target = self._link.heads(self._options.topics)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 — Spark's name
        """Give the topics' heads, from which Spark's progress tells the lag."""
        try:
            heads = self._linked().heads(self._options.topics)
        except BrokerError as error:
            if not may_pass(error):
                raise
            return None
        return Position({topic: TopicPosition(head.next) for topic, head in heads.items()}).to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        """Split the offsets from `start` to `end` into ranges that are read at the same time."""
        first, last = Position.from_json(start), Position.from_json(end)
        watermark_ms = None if self._options.limits is None else first.watermark_ms
        ranges = []
        for topic, at in first.topics.items():
            head = last.topics[topic].next
            # A topic that was made anew is read from its first event on.
            ranges += self._split(topic, at.next if at.next <= head else 0, head, watermark_ms)
        if watermark_ms is None or last.closes_ms == first.closes_ms:
            return ranges
        if not ranges:
            ranges.append(Range(next(iter(first.topics)), 0, 0, watermark_ms))
        ranges[-1].tick_ms = last.closes_ms
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches."""
        assert isinstance(partition, Range)  # noqa: S101 — Spark gives back what `partitions` made
        keep_imports()
        with self._patient_link() as link:
            chunks = link.whole_chunks if self._options.fail_on_data_loss else link.chunks
            for lines in chunks(partition.topic, partition.start, partition.end):
                yield self._rows.batch(partition.topic, lines, partition.watermark_ms)
        if partition.tick_ms is not None:
            yield self._rows.tick(partition.tick_ms)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: the broker keeps no cursor for Spark, the checkpoint does."""

    def stop(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()

    def _bound(self, limit: ReadLimit) -> int | None:
        if not isinstance(limit, ReadMaxRows):
            return None
        return min(limit.max_rows, self._pace.rows) if self._pace else limit.max_rows

    def _own(self, start: Mapping[str, Any]) -> Position:
        position = Position.from_json(start)
        if set(position.topics) != set(self._options.topics):
            raise OptionError(
                f"the checkpoint is of a query of {', '.join(sorted(position.topics))}, and this one reads "
                f"{', '.join(sorted(self._options.topics))}; give it a checkpoint of its own"
            )
        return position

    def _first(self, link: Link, topic: str, head: Head) -> int:
        start = self._options.start
        if start == "earliest":
            return head.earliest
        if start == "latest":
            return head.next
        if not isinstance(start, int):
            return link.offset_at(topic, start)
        if len(self._options.topics) > 1:
            raise OptionError(f"from={start}: an offset belongs to one topic; give a time for several")
        return start

    def _reached(self, position: Position, heads: Mapping[str, Head], rows_max: int | None) -> Position:
        limits = self._options.limits
        reached = self._within(position, heads, rows_max)
        while rows_max and limits and is_short(position, reached, heads, limits):
            rows_max *= 2
            reached = self._within(position, heads, rows_max)
        return reached

    def _within(self, position: Position, heads: Mapping[str, Head], rows_max: int | None) -> Position:
        starts = {topic: self._held(topic, at.next, heads[topic]) for topic, at in position.topics.items()}
        rows = share_rows({topic: max(0, heads[topic].next - starts[topic]) for topic in starts}, rows_max)
        reached = {}
        for topic, at in position.topics.items():
            end = starts[topic] + rows[topic]
            if end == at.next:
                reached[topic] = at
            elif self._options.limits is None or not rows[topic]:
                reached[topic] = TopicPosition(end, at.time_ms, at.arrived_ms)
            else:
                reached[topic] = TopicPosition(end, *self._linked().times(topic, end - 1))
        return replace(position, topics=reached)

    def _held(self, topic: str, wanted: int, head: Head) -> int:
        if head.earliest <= wanted <= head.next or (self._target and wanted > head.next):
            return wanted
        if self._options.fail_on_data_loss:
            raise DataLossError(topic, wanted, head.earliest, head.next)
        return head.earliest

    def _decided(self, start: Position, reached: Position, heads: Mapping[str, Head], now_ms: int) -> Position:
        limits = self._options.limits
        if limits is None:
            return reached
        if self._target is None:
            return decide(start, reached, heads, limits, now_ms=now_ms, last_batch_ms=self._last_batch_ms)
        # A query that ends with what is there has no use for the clock, nor time to wait.
        if start.is_early and reached.topics == start.topics:
            return start
        start, limits = replace(start, is_early=False), replace(limits, every_ms=0)
        return decide(start, reached, heads, limits, now_ms=0, last_batch_ms=0)

    def _split(self, topic: str, start: int, end: int, watermark_ms: int | None) -> list[Range]:
        rows = end - start
        count = min(self._options.ranges_max, -(-rows // _ROWS_PER_RANGE_MIN))
        edges = [start + rows * part // max(count, 1) for part in range(count + 1)]
        return [Range(topic, low, high, watermark_ms) for low, high in pairwise(edges)]

    def _linked(self) -> Link:
        # While the broker is away a trigger finds nothing, rather than wait and hold up the query's end.
        if self._link is None:
            self._link = Link(self._options.broker, retry_s=0)
        return self._link

    def _patient_link(self) -> Link:
        return Link(self._options.broker, retry_s=self._options.retry_s)
