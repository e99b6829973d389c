"""Both statistics on static frames, compared with the plain-Python reference."""

import random
from collections.abc import Callable, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from spark.connector.rows import COLUMNS_WITH_WATERMARK, RowBuilder, columns
from spark.statistics.changes import CHANGE, counted_changes
from spark.statistics.stats_topic import window_events
from spark.statistics.tweets_stats import tweets_stats
from spark.statistics.users_stats import users_stats
from tests.spark import reference, samples
from tests.spark.comparison import assert_close, assert_tweets_equal
from tests.spark.reference import Row
from tweetwire.statistics import TweetsWindow, UsersWindow, read_window

WINDOW_MS = 10_000
START = 1_700_000_000_000


def frame(session: SparkSession, rows: Sequence[Row]) -> DataFrame:
    tuples = [
        (row["topic"], row["offset"], row["timestamp"], row["id"], 0, row["key"], None, row["msg"], row["watermark"])
        for row in rows
    ]
    names = "topic string, offset long, ms long, id string, priority int, key string, producer string, msg string"
    plain = session.createDataFrame(tuples, f"{names}, watermark long")
    return plain.withColumn("timestamp", fn.timestamp_millis("ms")).select(*COLUMNS_WITH_WATERMARK.fieldNames())


def computed(
    rows: DataFrame, statistic: Callable[[DataFrame, int], DataFrame], users_topic: str | None = None
) -> dict[str, Row]:
    stats = statistic(counted_changes(rows, WINDOW_MS, users_topic), WINDOW_MS)
    events = window_events(stats, "stats").collect()
    found = {}
    for event in events:
        msg = msgspec.json.decode(event["msg"])
        assert event["id"] == f"stats:{msg['window']['start']}"
        kind = TweetsWindow if statistic is tweets_stats else UsersWindow
        assert read_window(event["msg"].encode(), kind) is not None
        assert set(msg) == set(kind.__struct_fields__) - {"totals"}
        found[msg["window"]["start"]] = msg
    assert len(found) == len(events), "a window came twice"
    return found


def sample_rows(count: int = 1500) -> list[Row]:
    changes = samples.changes(count)
    return [samples.row(offset, change, arrived=change["at"] + offset % 50) for offset, change in enumerate(changes)]


def test_tweets_stats_equal_the_plain_computation(spark_session: SparkSession) -> None:
    rows = sample_rows()
    assert_tweets_equal(computed(frame(spark_session, rows), tweets_stats), reference.tweets_stats(rows, WINDOW_MS))


def test_users_stats_equal_the_plain_computation(spark_session: SparkSession) -> None:
    rows = sample_rows()
    inserts = [("insert", 3), ("update", 4), ("insert", 12_000), ("insert", 50_000), ("snapshot", 5)]
    for number, (op, after) in enumerate(inserts):
        change = {"op": op, "document": {"screen_name": "someone"}, "at": START + after}
        rows.append(samples.row(number, change, arrived=START + after, topic="users"))
    found = computed(frame(spark_session, rows), users_stats, "users")
    expected = reference.users_stats(rows, WINDOW_MS)
    assert sum(window["new_users"] for window in expected.values()) == 3
    assert_close(found, {reference.iso(start): window for start, window in expected.items()})


def test_the_order_of_the_rows_changes_nothing(spark_session: SparkSession) -> None:
    rows = sample_rows(600)
    shuffled = list(rows)
    random.Random(1).shuffle(shuffled)
    expected = reference.tweets_stats(rows, WINDOW_MS)
    assert_tweets_equal(computed(frame(spark_session, shuffled), tweets_stats), expected)


def test_odd_messages_are_counted_where_they_are_tweets_and_never_raise(spark_session: SparkSession) -> None:
    rows = [samples.row(offset, change, arrived=START + 2_000) for offset, change in enumerate(samples.ODD)]
    expected = reference.tweets_stats([row for row in rows if row["msg"].startswith('{"op"')], WINDOW_MS)
    found = computed(frame(spark_session, rows), tweets_stats)
    assert_tweets_equal(found, expected)
    assert sum(window["tweets"] for window in found.values()) == 6
    users = computed(frame(spark_session, rows), users_stats, "users")
    assert sorted(window["active_users"] for window in users.values()) == [1, 2]


def test_a_row_whose_window_is_final_is_counted_as_late_in_the_open_window(spark_session: SparkSession) -> None:
    change = samples.changes(1)[0] | {"op": "insert"}
    rows = [
        samples.row(0, change | {"at": START}, arrived=START),
        samples.row(1, change | {"at": START}, arrived=START + 21_000, watermark=START + 10_000),
        samples.row(2, change | {"at": START + 9_999}, arrived=START + 21_000, watermark=START + 9_999),
        samples.row(3, change | {"at": START + 20_500}, arrived=START + 21_000, watermark=START + 10_000),
    ]
    expected = reference.tweets_stats(rows, WINDOW_MS)
    assert [(window["tweets"], window["late"]) for _, window in sorted(expected.items())] == [(2, 0), (0, 1), (1, 0)]
    assert_tweets_equal(computed(frame(spark_session, rows), tweets_stats), expected)


def test_a_tie_for_the_tenth_place_is_broken_by_key(spark_session: SparkSession) -> None:
    tags = [f"tie{number:02}" for number in range(20)]
    change = {"op": "insert", "document": {"hashtags": tags, "user": {"id_str": "1"}}, "at": START}
    rows = [samples.row(offset, change, arrived=START) for offset in range(3)]
    [window] = computed(frame(spark_session, rows), tweets_stats).values()
    assert window["hashtags"] == [{"key": tag, "count": 3} for tag in tags[:10]]


def test_a_time_after_the_brokers_own_is_taken_as_the_brokers(spark_session: SparkSession) -> None:
    change = {"op": "insert", "document": None, "at": START + 86_400_000}
    rows = [samples.row(0, change, arrived=START + 5)]
    [window] = computed(frame(spark_session, rows), tweets_stats).values()
    assert window["window"]["start"] == reference.iso(START - START % WINDOW_MS)


def test_a_window_without_tweets_keeps_all_its_members(spark_session: SparkSession) -> None:
    change = {"op": "insert", "document": {"screen_name": "someone"}, "at": START}
    rows = [samples.row(0, change, arrived=START, topic="users")]
    [window] = computed(frame(spark_session, rows), users_stats, "users").values()
    assert window["new_users"] == 1
    assert window["active_users"] == 0
    assert window["verified_share"] is None
    assert window["top_by_tweets"] == []


def test_messages_are_parsed_as_from_json_parses_them(spark_session: SparkSession) -> None:
    messages = [
        *samples.ODD,
        *samples.changes(20),
        {"op": "insert", "at": 1.5, "document": {"lang": 7, "hashtags": "x"}},
    ]
    messages += [{"op": 5, "document": {"user": {"verified": "yes", "followers_count": 1 << 70}, "sentiment": 1}}]
    texts = [msgspec.json.encode(message).decode() for message in messages]
    table = spark_session.createDataFrame([(text,) for text in texts], "msg string")
    wanted = [row["msg"] for row in table.select(fn.from_json("msg", CHANGE).alias("msg")).collect()]
    batch = RowBuilder(columns(msg=CHANGE)).batch(
        "tweets", [samples.line(n, message) for n, message in enumerate(messages)], 0
    )
    found = batch.column("msg").to_pylist()
    nothing = {"op": None, "at": None, "document": None}
    assert [one or nothing for one in found] == [row.asDict(recursive=True) if row else nothing for row in wanted]
