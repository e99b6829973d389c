"""Read a collection of MongoDB as a Spark table: ranges of `_id`, each read by one task through PyMongoArrow.

The format ``tweetwire-mongo`` takes the options `url`, `database`, `collection`, `rows` (documents in a range) and
`timeout_ms`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pymongo import MongoClient
from pymongo.collection import Collection
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, LongType, StringType, StructField, StructType

__all__ = ["TWEETS", "USERS", "CollectionSource", "bounds"]

TWEETS = StructType(
    [
        StructField("_id", StringType()),
        StructField("ingested_at", LongType()),
        StructField("lang", StringType()),
        StructField("kind", StringType()),
        StructField("hashtags", ArrayType(StringType())),
        StructField("mentions", ArrayType(StringType())),
        StructField("sentiment", DoubleType()),
        StructField("engagement", DoubleType()),
        StructField(
            "user",
            StructType(
                [
                    StructField("id_str", StringType()),
                    StructField("screen_name", StringType()),
                    StructField("followers_count", LongType()),
                    StructField("verified", BooleanType()),
                ]
            ),
        ),
    ]
)
"""The members of a tweet that the statistics need; `ingested_at` is in ms since 1970 UTC.

A value of another type is read as null.
"""

USERS = StructType([StructField("_id", StringType()), StructField("first_seen", LongType())])
"""The members of a user that the statistics need."""

_SAMPLES_PER_RANGE = 20
_DATES = {"ingested_at", "first_seen"}


class CollectionSource(DataSource):
    """The data source that the backfill registers; its schema must be given."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tweetwire-mongo"

    def reader(self, schema: StructType) -> "CollectionReader":
        """Return a reader of the collection."""
        return CollectionReader(dict(self.options), schema)


class Between(InputPartition):
    """The documents whose `_id` is at least `low` and below `high`; None for no bound."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low = low
        self.high = high


class CollectionReader(DataSourceReader):
    """Plans the ranges on the driver and reads them on the executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[InputPartition]:
        """Split the collection into ranges of about `rows` documents."""
        with self._client() as client:
            edges = bounds(self._collection(client), int(self._options["rows"]))
        return [Between(low, high) for low, high in zip([None, *edges], [*edges, None], strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches."""
        assert isinstance(partition, Between)  # noqa: S101 — Spark gives back what `partitions` made
        with self._client() as client:
            table = _find(self._collection(client), partition, self._schema)
        yield from table.to_batches()

    def _client(self) -> MongoClient[dict[str, Any]]:
        timeout_ms = int(self._options["timeout_ms"])
        return MongoClient(
            self._options["url"],
            appname="tweetwire backfill",
            readConcernLevel="majority",
            serverSelectionTimeoutMS=timeout_ms,
        )

    def _collection(self, client: MongoClient[dict[str, Any]]) -> Collection[dict[str, Any]]:
        return client[self._options["database"]][self._options["collection"]]


def bounds(collection: Collection[dict[str, Any]], rows: int) -> list[Any]:
    """Return the `_id`s that cut a collection into ranges of about `rows` documents, determined from a sample.

    MongoDB sorts the `_id`s, since Python cannot compare values of different types.
    """
    ranges = -(-collection.estimated_document_count() // rows)
    if ranges < 2:
        return []
    stages: list[dict[str, Any]] = [
        {"$sample": {"size": ranges * _SAMPLES_PER_RANGE}},
        {"$project": {"_id": 1}},
        {"$group": {"_id": "$_id"}},
        {"$sort": {"_id": 1}},
    ]
    sample = [found["_id"] for found in collection.aggregate(stages, allowDiskUse=True)]
    return [sample[len(sample) * cut // ranges] for cut in range(1, ranges) if len(sample) * cut // ranges > 0]


def _find(collection: Collection[dict[str, Any]], between: Between, schema: pa.Schema) -> pa.Table:
    from pymongoarrow.api import Schema, find_arrow_all  # noqa: PLC0415 — an extra, which only the backfill needs

    # Use bounds of the index instead of a condition, since a condition finds only values of the bound's type.
    ends = {"min": between.low, "max": between.high}
    span = {name: {"_id": edge} for name, edge in ends.items() if edge is not None}
    kinds = {field.name: _STORED_DATE if field.name in _DATES else field.type for field in schema}
    table = find_arrow_all(collection, {}, schema=Schema(kinds), allow_invalid=True, hint=[("_id", 1)], **span)
    return table.cast(schema)


_STORED_DATE = pa.timestamp("ms")
