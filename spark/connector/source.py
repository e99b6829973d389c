"""``format("tweetwire")``: the broker's topics as a Spark source and sink, for streams and for batches.

`register` adds the format to a session. PYSPARK_PYTHON must name a Python that has this package.

Options for reading:

- `broker`: the address; `user` and `token` if the broker has users.
- `tls` (true), or the PEM files `tlsCa`, `tlsCert` and `tlsKey`, if the broker speaks TLS. Each executor needs the files.
- `topic`: one topic, or several separated by commas.
- `from`: where to begin: earliest, latest, an offset or a time.
- `maxRecordsPerTrigger`: the most rows in a micro-batch.
- `paced`: whether to keep batches small enough to be short (`spark.connector.pace`). Use true only with triggers of
  less than a second.
- `ranges`: how many ranges of a batch are read in parallel.
- `failOnDataLoss`: whether a query fails if unread events are no longer in the topic.
- `retry`: how long to wait for a lost broker.
- `watermark`: adds the column `watermark`, which states how far event time has come (`spark.connector.progress`).

With `watermark` there are four further options. `window` (10 s) is the length of your windows, since the watermark moves by
whole windows. `idle` and `every` are times. `early` may be true only if spark.sql.streaming.noDataMicroBatches.enabled is
false: then the batch that waits for a window's end also closes the window, whatever maxRecordsPerTrigger is. With `watermark`,
rows with a null `id` are ticks: they move the watermark and are not events. Drop them (`where id is not null`) before your own
sink.

With your own schema, rows have only its columns. If its `msg` is a struct (of string, bigint, double, boolean, and arrays and
structs of these), messages arrive parsed (`spark.connector.parsing`), which is faster than `from_json`.

Options for writing are `broker`, `user`, `token`, those of TLS, `topic`, `producer`, `retry` and `totals`. A `producer` is a
name for one write, or for one query with its checkpoint. Later rows under the same name, even with a new checkpoint, count
as repetitions and are not stored. The rows of a micro-batch are published in the order of `id` and then `msg`, whatever their
order was.
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

from spark.connector.batch import TopicBatchReader, TopicBatchWriter
from spark.connector.errors import DataLossError, OptionError
from spark.connector.link import SparkLink, may_pass
from spark.connector.options import ReadOptions, WriteOptions
from spark.connector.pace import Pace
from spark.connector.progress import Head, ReadPosition, TopicPosition, decide, is_short, share_rows
from spark.connector.rows import COLUMNS, COLUMNS_WITH_WATERMARK, RowBuilder
from spark.connector.sink import TopicStreamWriter
from spark.connector.worker_process import keep_imports
from tweetwire import BrokerError

__all__ = ["TopicStreamReader", "TweetwireSource", "register"]

_ROWS_PER_RANGE_MIN = 4_000
"""The fewest rows of a range. For fewer rows, one more task would cost more time than it saves."""


def register(session: SparkSession) -> None:
    """Add ``format("tweetwire")`` to a Spark session.

    Args:
        session: any session, also one that this package has not built.
    """
    # Without this setting, Spark refuses each batch read of a source that accepts filters.
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(TweetwireSource)


class TweetwireSource(DataSource):
    """The data source that a session registers."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tweetwire"

    def schema(self) -> StructType:
        """Return the columns. With the option `watermark` there is one more."""
        return COLUMNS_WITH_WATERMARK if "watermark" in self.options else COLUMNS

    def reader(self, schema: StructType) -> TopicBatchReader:
        """Return a reader of the topics' current events."""
        return TopicBatchReader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> "TopicStreamReader":  # noqa: N802 — Spark's name
        """Return a reader that follows the topics."""
        keep_imports()
        return TopicStreamReader(ReadOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TopicBatchWriter:
        """Return a writer of a static table. Raises OptionError for the mode overwrite."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode append")
        return TopicBatchWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802 — Spark's name
        """Return a writer that publishes each row of a query once."""
        keep_imports()
        return TopicStreamWriter(WriteOptions.parse(self.options), schema)


class Range(InputPartition):
    """Offsets `start` to `end` - 1 of a topic. If `tick_ms` is set, a tick with this watermark follows."""

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
        self._rows = RowBuilder(schema)
        self._link: SparkLink | None = None
        self._last_batch_ms = 0
        self._pace = Pace(options.rows_max) if options.is_paced else None
        self._target: dict[str, Head] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connection: executors open their own."""
        return {**self.__dict__, "_link": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the start of a new query. Raises OptionError for an offset with several topics."""
        with self._patient_link() as link:
            heads = link.heads(self._options.topics)
            return ReadPosition(
                {topic: TopicPosition(self._first(link, topic, heads[topic])) for topic in heads}
            ).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """Limit a batch to `maxRecordsPerTrigger`."""
        return ReadMaxRows(self._options.rows_max)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the end of the next batch; `start` itself if no batch is due or the broker is unreachable."""
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
        """Make the current ends of the topics the end of the query."""
        self.stop()
        self._link = self._patient_link()
        self._target = self._link.heads(self._options.topics)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 — Spark's name
        """Return the topics' heads, from which Spark computes the lag."""
        try:
            heads = self._linked().heads(self._options.topics)
        except BrokerError as error:
            if not may_pass(error):
                raise
            return None
        return ReadPosition({topic: TopicPosition(head.next) for topic, head in heads.items()}).to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        """Split the offsets from `start` to `end` into ranges that are read in parallel."""
        first, last = ReadPosition.from_json(start), ReadPosition.from_json(end)
        watermark_ms = None if self._options.limits is None else first.watermark_ms
        ranges = []
        for topic, at in first.topics.items():
            head = last.topics[topic].next
            # A topic that was created again is read from its first event.
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
        """Do nothing: the position of a query is in Spark's checkpoint, not at the broker."""

    def stop(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()

    def _bound(self, limit: ReadLimit) -> int | None:
        if not isinstance(limit, ReadMaxRows):
            return None
        return min(limit.max_rows, self._pace.rows) if self._pace else limit.max_rows

    def _own(self, start: Mapping[str, Any]) -> ReadPosition:
        position = ReadPosition.from_json(start)
        if set(position.topics) != set(self._options.topics):
            raise OptionError(
                f"the checkpoint belongs to a query of {', '.join(sorted(position.topics))}, but this one reads "
                f"{', '.join(sorted(self._options.topics))}; give it another checkpoint"
            )
        return position

    def _first(self, link: SparkLink, topic: str, head: Head) -> int:
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

    def _reached(self, position: ReadPosition, heads: Mapping[str, Head], rows_max: int | None) -> ReadPosition:
        limits = self._options.limits
        reached = self._within(position, heads, rows_max)
        while rows_max and limits and is_short(position, reached, heads, limits):
            rows_max *= 2
            reached = self._within(position, heads, rows_max)
        return reached

    def _within(self, position: ReadPosition, heads: Mapping[str, Head], rows_max: int | None) -> ReadPosition:
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

    def _decided(
        self, start: ReadPosition, reached: ReadPosition, heads: Mapping[str, Head], now_ms: int
    ) -> ReadPosition:
        limits = self._options.limits
        if limits is None:
            return reached
        if self._target is None:
            return decide(start, reached, heads, limits, now_ms=now_ms, last_batch_ms=self._last_batch_ms)
        # With the trigger availableNow, a query ends with the current events, so it needs neither the clock nor a pause.
        if start.is_early and reached.topics == start.topics:
            return start
        start, limits = replace(start, is_early=False), replace(limits, every_ms=0)
        return decide(start, reached, heads, limits, now_ms=0, last_batch_ms=0)

    def _split(self, topic: str, start: int, end: int, watermark_ms: int | None) -> list[Range]:
        rows = end - start
        count = min(self._options.ranges_max, -(-rows // _ROWS_PER_RANGE_MIN))
        edges = [start + rows * part // max(count, 1) for part in range(count + 1)]
        return [Range(topic, low, high, watermark_ms) for low, high in pairwise(edges)]

    def _linked(self) -> SparkLink:
        # If the broker is unreachable, a trigger finds nothing; waiting would delay the query's end.
        if self._link is None:
            self._link = SparkLink(self._options.broker, retry_s=0)
        return self._link

    def _patient_link(self) -> SparkLink:
        return SparkLink(self._options.broker, retry_s=self._options.retry_s)
