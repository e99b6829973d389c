"""The source plans and reads batches of a real broker. The tests call it directly, without Spark."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark.connector.batch import Slice, TopicBatchReader
from spark.connector.errors import DataLossError, OptionError
from spark.connector.link import SparkLink
from spark.connector.options import ReadOptions, parse_start
from spark.connector.progress import ReadPosition, TopicPosition
from spark.connector.rows import COLUMNS, COLUMNS_WITH_WATERMARK
from spark.connector.source import TopicStreamReader, TweetwireSource
from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import answering, scripted_broker
from tests.support.waiting import until
from tweetwire import BrokerUnreachable, Event, SyncClient
from tweetwire.runtime.login import Login


def publish(broker: BrokerProcess, topic: str, count: int, *, first: int = 0) -> None:
    events = [Event(id=str(first + n), key=f"k{n}", priority=n % 7, msg={"n": first + n}) for n in range(count)]
    with SyncClient(broker.address) as client:
        client.publish_many(topic, events)


def publish_timed(broker: BrokerProcess, times_ms: list[int]) -> None:
    with SyncClient(broker.address) as client:
        client.publish_many("tweets", [Event(id=str(at), msg={"at": at}) for at in times_ms])


def options(broker: BrokerProcess, topic: str = "tweets", **others: str) -> ReadOptions:
    return ReadOptions.parse({"broker": broker.address, "topic": topic, "retry": "5s", **others})


@pytest.fixture
def reader_with(broker: BrokerProcess) -> Iterator[Callable[..., TopicStreamReader]]:
    """Make readers with options. At the end they are stopped as Spark stops them."""
    with ExitStack() as stack:

        def make(topic: str = "tweets", **others: str) -> TopicStreamReader:
            schema = COLUMNS_WITH_WATERMARK if "watermark" in others else COLUMNS
            reader = TopicStreamReader(options(broker, topic, **others), schema)
            stack.callback(reader.stop)
            return reader

        yield make


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def read(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return rows(batch for part in reader.partitions(start, end) for batch in reader.read(part))


def test_a_row_has_the_published_event(broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]) -> None:
    with SyncClient(broker.address) as client:
        client.publish("tweets", Event(id="a", msg={"text": "ü🎉"}, priority=3, key="k", producer="p", sequence=1))
        client.publish("tweets", Event(id="b", msg=None))
    reader = reader_with()
    start = reader.initialOffset()
    first, second = read(reader, start, reader.latestOffset(start, ReadAllAvailable()))
    now = datetime.now(UTC)
    assert abs((now - first.pop("timestamp")).total_seconds()) < 30
    assert first == {
        "topic": "tweets", "offset": 0, "id": "a", "priority": 3, "key": "k", "producer": "p", "msg": '{"text":"ü🎉"}',
    }  # fmt: skip
    assert (second["key"], second["producer"], second["priority"], second["msg"]) == (None, None, 0, "null")


def test_a_query_begins_at_its_start_option(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish(broker, "tweets", 50)
    while time.time_ns() // 1_000_000 <= rows_timestamp_ms(broker, 49):
        pass
    moment = datetime.now(UTC)
    publish(broker, "tweets", 50, first=50)

    def first(start: str) -> int:
        offset = reader_with(**{"from": start}).initialOffset()
        return ReadPosition.from_json(offset).topics["tweets"].next

    assert first("earliest") == 0
    assert first("latest") == 100
    assert first("17") == 17
    assert first(moment.isoformat()) == 50
    assert first("2001-01-01T00:00:00Z") == 0
    assert first("2101-01-01") == 100


def rows_timestamp_ms(broker: BrokerProcess, offset: int) -> int:
    with SparkLink(Login(broker.address)) as link:
        return link.times("tweets", offset)[1]


def test_an_offset_for_several_topics_is_refused(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    with pytest.raises(OptionError, match="belongs to one topic"):
        reader_with("tweets,users", **{"from": "5"}).initialOffset()


def test_batches_are_bounded_always_advance_and_end_at_the_head(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish(broker, "tweets", 95)
    reader = reader_with(maxRecordsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    at, sizes, seen = reader.initialOffset(), [], []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        found = read(reader, at, end)
        sizes.append(len(found))
        seen += [row["offset"] for row in found]
        at = end
    assert sizes == [20, 20, 20, 20, 15]
    assert seen == list(range(95))


def test_a_paced_source_reads_more_after_a_batch_that_was_short(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish(broker, "tweets", 160_000)
    reader = reader_with(maxRecordsPerTrigger="70000", paced="true")
    ends = [at := reader.initialOffset()]
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        ends.append(at := end)
    assert [ReadPosition.from_json(end).topics["tweets"].next for end in ends] == [0, 50_000, 120_000, 160_000]


def test_the_same_range_reads_the_same_rows_again(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish(broker, "tweets", 9_000)
    reader = reader_with(ranges="4", watermark="1s")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    once = read(reader, start, end)
    publish(broker, "tweets", 10)
    assert read(reader_with(ranges="3", watermark="1s"), start, end) == once
    assert [row["offset"] for row in once] == [*range(9_000), None]


def test_a_large_range_is_split_and_an_empty_one_has_no_partition(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish(broker, "tweets", 9_000)
    reader = reader_with(ranges="2")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [(part.start, part.end) for part in reader.partitions(start, end)] == [(0, 4500), (4500, 9000)]
    assert reader.partitions(end, end) == []


def test_with_a_watermark_the_rows_carry_it_and_a_tick_follows(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish_timed(broker, [1_000_000, 1_000_001])
    reader = reader_with(watermark="1s")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    found = read(reader, start, end)
    assert [(row["id"], row["watermark"]) for row in found] == [("1000000", 0), ("1000001", 0), (None, 990_000)]
    assert read(reader, end, end) == []


def test_a_window_announced_early_is_closed_by_one_batch_with_all_its_events_for_any_bound(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    reader = reader_with(watermark="1s", window="10s", every="2s", early="true")
    publish_timed(broker, [1_009_000])
    before = reader.latestOffset(reader.initialOffset(), ReadMaxRows(20))
    assert before["closes"] == 1_000_000
    near = reader.latestOffset(before, ReadMaxRows(20))
    assert near["closes"] == 1_010_000
    publish_timed(broker, [1_009_001 + 10 * n for n in range(100)])
    assert reader.latestOffset(near, ReadMaxRows(20)) == near
    publish_timed(broker, [1_011_000] * 100)
    end = reader.latestOffset(near, ReadMaxRows(20))
    assert end["watermark"] == 1_010_000
    assert end["topics"]["tweets"]["next"] in range(102, 201)
    assert {row["watermark"] for row in read(reader, near, end)} == {1_000_000}


def test_available_now_stops_at_the_end_that_the_topic_had(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish(broker, "tweets", 30)
    reader = reader_with(watermark="1s", every="1h")
    at = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    publish(broker, "tweets", 30, first=30)
    seen = []
    while (end := reader.latestOffset(at, ReadMaxRows(20))) != at:
        seen += [row["offset"] for row in read(reader, at, end) if row["id"] is not None]
        at = end
    assert seen == list(range(30))


def test_the_lag_is_reported(broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]) -> None:
    publish(broker, "tweets", 5)
    report = reader_with().reportLatestOffset()
    assert report is not None
    assert ReadPosition.from_json(report).topics["tweets"].next == 5


def test_a_topic_that_is_not_there_yet_is_empty(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    reader = reader_with("later")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    publish(broker, "later", 3)
    assert len(read(reader, start, reader.latestOffset(start, ReadAllAvailable()))) == 3


def test_a_recreated_topic_is_an_error_unless_loss_is_allowed(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish(broker, "tweets", 5)
    beyond = {"topics": {"tweets": {"next": 99, "time": 0, "arrived": 0}}, "watermark": 0}
    with pytest.raises(DataLossError, match="created again"):
        reader_with().latestOffset(beyond, ReadAllAvailable())
    written_down = {"topics": {"tweets": {"next": 199, "time": 0, "arrived": 0}}, "watermark": 0}
    with pytest.raises(DataLossError, match="created again"):
        read(reader_with(), beyond, written_down)
    lenient = reader_with(failOnDataLoss="false")
    assert read(lenient, beyond, written_down) == []
    assert [row["id"] for row in read(lenient, beyond, lenient.latestOffset(beyond, ReadAllAvailable()))] == [*"01234"]


def test_a_checkpoint_of_other_topics_is_refused(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    start = reader_with().initialOffset()
    with pytest.raises(OptionError, match="belongs to a query of tweets, but this one reads tweets, users"):
        reader_with("tweets,users").latestOffset(start, ReadAllAvailable())


def test_rows_removed_between_planning_and_reading_are_an_error_or_passed_over_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", "--segment-bytes", "64KiB") as broker, ExitStack() as stack:
        for first in range(0, 9_000, 500):
            publish(broker, "tweets", 500, first=first)
        reader, lenient = (
            TopicStreamReader(options(broker, ranges="3", failOnDataLoss=fail), COLUMNS) for fail in ("true", "false")
        )
        stack.callback(reader.stop)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        with SyncClient(broker.address) as client, SparkLink(Login(broker.address)) as link:
            client.command("retain tweets bytes=64KiB")
            until(lambda: link.heads(["tweets"])["tweets"].earliest > 4_500)
            earliest = link.heads(["tweets"])["tweets"].earliest
        with pytest.raises(DataLossError, match="retention has removed them"):
            read(reader, start, end)
        assert [row["offset"] for row in read(lenient, start, end)] == [*range(earliest, 9_000)]


def test_a_batch_from_an_offset_that_retention_removed_is_an_error_unless_loss_is_allowed(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "broker", "--segment-bytes", "64KiB") as broker,
        SparkLink(Login(broker.address)) as link,
    ):
        for first_offset in range(0, 6_000, 500):
            publish(broker, "tweets", 500, first=first_offset)
        link.call(lambda client: client.command("retain tweets bytes=64KiB"))
        until(lambda: link.heads(["tweets"])["tweets"].earliest > 0)
        earliest = link.heads(["tweets"])["tweets"].earliest

        def first(start: str, fail: str = "true") -> int:
            given = options(broker, ranges="1", failOnDataLoss=fail, **{"from": start})
            [part] = TopicBatchReader(given, COLUMNS).partitions()
            assert isinstance(part, Slice)
            return part.start

        with pytest.raises(DataLossError, match="retention has removed them"):
            first("0")
        assert {first("earliest"), first("2001-01-01"), first(str(earliest)), first("0", "false")} == {earliest}


def test_a_trigger_finds_nothing_while_the_broker_is_away_and_continues_after(
    broker: BrokerProcess, reader_with: Callable[..., TopicStreamReader]
) -> None:
    publish(broker, "tweets", 5)
    reader = reader_with()
    start = reader.initialOffset()
    at = reader.latestOffset(start, ReadAllAvailable())
    broker.kill()
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    assert reader.reportLatestOffset() is None
    broker.start()
    publish(broker, "tweets", 5, first=5)
    end = reader.latestOffset(at, ReadAllAvailable())
    assert [row["id"] for row in read(reader, at, end)] == ["5", "6", "7", "8", "9"]


def test_events_of_a_millisecond_are_within_its_bounds(broker: BrokerProcess) -> None:
    publish(broker, "tweets", 1)
    at = datetime.fromtimestamp(rows_timestamp_ms(broker, 0) / 1000, UTC)

    def found(condition: Filter) -> int:
        reader = TopicBatchReader(options(broker), COLUMNS)
        list(reader.pushFilters([condition]))
        return len(rows(batch for part in reader.partitions() for batch in reader.read(part)))

    assert [found(kind(("timestamp",), at)) for kind in (EqualTo, LessThanOrEqual, GreaterThanOrEqual)] == [1, 1, 1]
    assert found(LessThanOrEqual(("timestamp",), at + timedelta(microseconds=999))) == 1
    assert found(LessThan(("timestamp",), at - timedelta(milliseconds=1))) == 0


def test_a_trigger_finds_nothing_where_the_broker_will_answer_later() -> None:
    start = ReadPosition({"tweets": TopicPosition(0)}).to_json()
    with scripted_broker(answering({b"topics": b"-ERR shutting_down come back\n"})) as address:
        reader = TopicStreamReader(ReadOptions.parse({"broker": address, "topic": "tweets"}), COLUMNS)
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        reader.stop()


def test_a_range_is_read_across_a_restart_of_the_broker(broker: BrokerProcess) -> None:
    publish(broker, "tweets", 10)
    broker.kill()
    restart = threading.Timer(0.5, broker.start)
    restart.start()
    try:
        with SparkLink(Login(broker.address), retry_s=20) as link:
            assert sum(len(lines) for lines in link.chunks("tweets", 0, 10)) == 10
    finally:
        restart.join()


def test_without_a_broker_it_gives_up_when_its_time_is_over(broker: BrokerProcess) -> None:
    broker.kill()
    with pytest.raises(BrokerUnreachable), SparkLink(Login(broker.address), retry_s=0.2) as link:
        link.heads(["tweets"])


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], range(100)),
        ([GreaterThanOrEqual(("offset",), 90)], range(90, 100)),
        ([GreaterThan(("offset",), 90), LessThan(("offset",), 95)], range(91, 95)),
        ([LessThanOrEqual(("offset",), 3), LessThanOrEqual(("offset",), 5)], range(4)),
        ([EqualTo(("offset",), 7)], range(7, 8)),
        ([GreaterThan(("offset",), 500)], range(0)),
        ([EqualTo(("id",), "5")], range(100)),
        ([GreaterThanOrEqual(("timestamp",), datetime(2100, 1, 1, tzinfo=UTC))], range(0)),
        ([GreaterThanOrEqual(("timestamp",), datetime(2001, 1, 1, tzinfo=UTC))], range(100)),
        ([LessThan(("timestamp",), datetime(2001, 1, 1, tzinfo=UTC))], range(0)),
        ([LessThanOrEqual(("timestamp",), datetime(2100, 1, 1, tzinfo=UTC))], range(100)),
        ([EqualTo(("timestamp",), datetime(2001, 1, 1, tzinfo=UTC))], range(0)),
        ([In(("offset",), (7, 9, 8))], range(7, 10)),
    ],
)
def test_filters_narrow_the_offsets_that_a_batch_reads(
    broker: BrokerProcess, filters: list[Any], expected: range
) -> None:
    publish(broker, "tweets", 100)
    reader = TopicBatchReader(options(broker, ranges="3"), COLUMNS)
    assert list(reader.pushFilters(filters)) == filters
    found = rows(batch for part in reader.partitions() for batch in reader.read(part))
    assert [row["offset"] for row in found] == list(expected)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"topic": "t"}, "needs the option broker"),
        ({"broker": "b"}, "needs the option topic"),
        ({"broker": "b", "topic": " , "}, "topic=,: write the name of a topic"),
        ({"broker": "b", "topic": "t", "from": "yesterday"}, "from=yesterday"),
        ({"broker": "b", "topic": "t", "maxRecordsPerTrigger": "0"}, "maxRecordsPerTrigger=0"),
        ({"broker": "b", "topic": "t", "failOnDataLoss": "no"}, "failOnDataLoss=no: write true or false"),
        ({"broker": "b", "topic": "t", "watermark": "5 parsecs"}, "watermark: .* not a duration"),
    ],
)
def test_a_wrong_option_is_reported_in_one_sentence(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        ReadOptions.parse(given)


def test_a_topic_is_not_overwritten() -> None:
    source = TweetwireSource({"broker": "b", "topic": "t"})
    with pytest.raises(OptionError, match="a topic cannot be overwritten; use mode append"):
        source.writer(COLUMNS, overwrite=True)


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_start("2026-11-27T20:00:00") == datetime(2026, 11, 27, 20, tzinfo=UTC)
