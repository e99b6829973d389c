"""The sink stores each row once in a real broker: batches run again completely, after an interruption, or reordered."""

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark.connector.batch import TopicBatchWriter
from spark.connector.errors import OptionError, RowError, TooManyRowsError
from spark.connector.options import WriteOptions
from spark.connector.sink import ROWS_PER_BATCH_MAX, Staged, StagedRow, TopicStreamWriter, publish
from tests.support.processes import BrokerProcess
from tweetwire import Refusal, StoredEvent, SyncClient
from tweetwire.runtime.login import Login

SCHEMA = StructType([StructField("id", StringType()), StructField("msg", StringType())])


def writer(broker: BrokerProcess, producer: str | None = None) -> TopicStreamWriter:
    return TopicStreamWriter(options(broker, producer), SCHEMA)


def options(broker: BrokerProcess, producer: str | None = None) -> WriteOptions:
    return WriteOptions(broker=Login(broker.address), topic="stats", producer=producer, retry_s=5)


def staged(*ids: str, query_id: str | None = "q-1") -> Staged:
    return Staged([StagedRow(name, f'{{"id":"{name}"}}') for name in ids], query_id)


def stored(broker: BrokerProcess) -> list[StoredEvent]:
    with SyncClient(broker.address) as client:
        return client.read("stats", 0).events


def test_a_batch_that_runs_again_is_stored_once(broker: BrokerProcess) -> None:
    sink = writer(broker)
    for _ in range(3):
        sink.commit([staged("b"), staged("a")], 0)
    sink.commit([staged("c"), staged()], 1)
    sink.commit([staged("a"), staged("b")], 0)
    events = stored(broker)
    assert [event.id for event in events] == ["a", "b", "c"]
    assert [event.producer for event in events] == ["spark.q-1"] * 3
    assert [event.sequence for event in events] == [0, 1, ROWS_PER_BATCH_MAX]
    assert events[0].decode() == {"id": "a"}


def test_a_batch_that_was_cut_short_is_completed(broker: BrokerProcess) -> None:
    rows = [StagedRow(name, "{}") for name in "abcd"]
    publish(options(broker), rows[:2], "spark.q-1", 5 * ROWS_PER_BATCH_MAX)
    writer(broker).commit([staged("d", "b"), staged("c", "a")], 5)
    assert [event.id for event in stored(broker)] == ["a", "b", "c", "d"]


def test_two_queries_do_not_take_each_others_rows_for_repeats(broker: BrokerProcess) -> None:
    writer(broker).commit([staged("a", query_id="q-1")], 0)
    writer(broker).commit([staged("a", query_id="q-2")], 0)
    assert len(stored(broker)) == 2


def test_a_batch_without_rows_publishes_nothing(broker: BrokerProcess) -> None:
    writer(broker).commit([staged(), None], 0)
    with pytest.raises(Refusal, match="unknown_topic"):
        stored(broker)


def test_a_restarted_broker_gets_the_batch(broker: BrokerProcess) -> None:
    sink = writer(broker, "named")
    sink.commit([staged("a")], 0)
    broker.kill()
    broker.start()
    sink.commit([staged("b")], 1)
    assert [event.id for event in stored(broker)] == ["a", "b"]


def test_rows_are_staged_from_arrow_with_all_their_columns(broker: BrokerProcess) -> None:
    schema = StructType([*SCHEMA.fields, StructField("priority", IntegerType()), StructField("key", StringType())])
    sink = TopicStreamWriter(options(broker, "p"), schema)
    table = pa.table(
        {"id": ["a", "b"], "msg": ["1", "[2]"], "priority": pa.array([9, None], pa.int32()), "key": ["k", None]}
    )
    sink.commit([sink.write(iter(table.to_batches()))], 0)
    first, second = stored(broker)
    assert (first.priority, first.key, first.decode()) == (9, "k", 1)
    assert (second.priority, second.decode()) == (0, [2])


def test_a_row_that_is_not_an_event_is_named_in_the_error(broker: BrokerProcess) -> None:
    table = pa.table({"id": pa.array([None], pa.string()), "msg": ["1"]})
    with pytest.raises(RowError, match="needs an id"):
        writer(broker).write(iter(table.to_batches()))


def test_a_batch_table_with_a_producer_is_stored_once(broker: BrokerProcess) -> None:
    for _ in range(2):
        TopicBatchWriter(options(broker, "backfill"), SCHEMA).commit(
            [staged("b", query_id=None), staged("a", query_id=None)]
        )
    assert [event.id for event in stored(broker)] == ["a", "b"]


def test_without_a_query_there_must_be_a_producer(broker: BrokerProcess) -> None:
    with pytest.raises(OptionError, match="option producer"):
        writer(broker).commit([staged("a", query_id=None)], 0)


def test_more_rows_than_sequences_are_refused_before_anything_is_published(broker: BrokerProcess) -> None:
    row = StagedRow("a", "1")
    with pytest.raises(TooManyRowsError):
        writer(broker).commit([Staged([row] * (ROWS_PER_BATCH_MAX + 1), "q")], 0)


@pytest.mark.parametrize(
    "schema",
    [
        StructType([StructField("id", StringType())]),
        StructType([StructField("id", LongType()), StructField("msg", StringType())]),
        StructType([*SCHEMA.fields, StructField("surprise", StringType())]),
    ],
)
def test_columns_that_make_no_event_are_refused(schema: StructType, broker: BrokerProcess) -> None:
    with pytest.raises(OptionError, match="publishes the columns id and msg"):
        TopicStreamWriter(options(broker), schema)
