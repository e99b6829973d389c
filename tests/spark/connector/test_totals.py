"""Totals: the sums are correct, also if the previous commit was interrupted."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from pyspark.sql.types import StringType, StructField, StructType

from spark.connector import link
from spark.connector.errors import OptionError
from spark.connector.link import read_some
from spark.connector.options import WriteOptions
from spark.connector.sink import ROWS_PER_BATCH_MAX, Staged, StagedRow, TopicStreamWriter
from spark.connector.totals import newest_totals, with_totals
from tests.spark import reference, samples
from tests.spark.comparison import assert_close, assert_totals
from tests.spark.reference import Row
from tests.spark.topics import totals
from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient
from tweetwire.runtime.login import Login

WINDOW_MS = 5_000
SCHEMA = StructType([StructField("id", StringType()), StructField("msg", StringType())])


def statistics(count: int = 300) -> tuple[dict[int, Row], dict[int, Row]]:
    """Return both statistics of some windows. One window has no tweets."""
    made = samples.changes(count)
    rows = [samples.row(offset, change, arrived=change["at"] + 20) for offset, change in enumerate(made)]
    rows.append(samples.row(count, {"op": "insert", "at": made[-1]["at"] + 60_000}, arrived=1 << 50, topic="users"))
    tweets = reference.tweets_stats(rows[:-1], WINDOW_MS)
    late = samples.row(0, made[0], arrived=1 << 50, watermark=made[-1]["at"] + 60_000)
    return tweets | reference.tweets_stats([late], WINDOW_MS), reference.users_stats(rows, WINDOW_MS)


TWEETS, USERS = statistics()


def events(windows: dict[int, Row]) -> list[Event]:
    return [Event(id=str(start), msg=Raw(msgspec.json.encode(window))) for start, window in sorted(windows.items())]


def carried(found: Sequence[Event]) -> list[Row]:
    return [msgspec.json.decode(event.msg)["totals"] for event in found]


def test_each_window_has_the_sums_of_all_windows_up_to_it_and_keeps_its_members() -> None:
    found = with_totals(events(TWEETS), "tweets_stats", None)
    assert len(found) > 5
    assert_totals(carried(found), TWEETS)
    assert [msgspec.json.decode(event.msg) | {"totals": None} for event in found] == [
        window | {"totals": None} for _, window in sorted(TWEETS.items())
    ]


def test_windows_of_users_have_sums_too() -> None:
    found = carried(with_totals(events(USERS), "users_stats", None))
    assert_totals(found, USERS, reference.users_totals)
    assert found[-1]["new_users"] == 1


def test_a_mean_is_of_the_tweets_that_have_a_sentiment() -> None:
    sentiments = [(None, 0, 0, 0), (0.5, 1, 0, 0), ("NaN", 0, 0, 0), (-0.5, 0, 0, 3), (None, 0, 0, 0)]
    made = {
        start: window
        | {
            "sentiment": window["sentiment"]
            | dict(zip(("mean", "positive", "neutral", "negative"), sentiment, strict=True))
        }
        for (start, window), sentiment in zip(sorted(TWEETS.items()), sentiments, strict=False)
    }
    found = carried(with_totals(events(made), "tweets_stats", None))
    assert [sums["sentiment"]["mean"] for sums in found] == [None, 0.5, 0.5, -0.25, -0.25]


def commit(broker: BrokerProcess, topic: str, windows: dict[int, Row], batch: int, producer: str = "spark.q") -> None:
    options = WriteOptions(
        broker=Login(broker.address), topic=topic, producer=producer, retry_s=5, totals="tweets_stats"
    )
    rows = [
        StagedRow(f"{topic}:{reference.iso(start)}", msgspec.json.encode(windows[start]).decode()) for start in windows
    ]
    TopicStreamWriter(options, SCHEMA).commit([Staged(rows, "q")], batch)


def publish(broker: BrokerProcess, topic: str, messages: Sequence[Any]) -> None:
    with SyncClient(broker.address) as client:
        client.publish_many(topic, [Event(id="someone's", msg=message) for message in messages])


@pytest.mark.stack
def test_a_commit_that_was_cut_anywhere_is_completed_with_the_right_totals(broker: BrokerProcess) -> None:
    before, batch = parts(TWEETS, 2)
    for cut in range(len(batch) + 1):
        topic = f"cut_at_{cut}"
        commit(broker, topic, before, 6)
        with SyncClient(broker.address) as client:
            whole = with_totals(events(batch), "tweets_stats", newest_totals(client, topic, "tweets_stats"))
            for place, event in enumerate(whole[:cut]):
                event.producer, event.sequence = "spark.q", 7 * ROWS_PER_BATCH_MAX + place
            client.publish_many(topic, whole[:cut])
        for _ in range(2):
            commit(broker, topic, batch, 7)
        assert_totals(totals(broker, topic), TWEETS)


@pytest.mark.stack
def test_a_new_query_continues_and_counts_no_window_again(broker: BrokerProcess) -> None:
    before, after = parts(TWEETS, 3)
    commit(broker, "stats", before, 0, "spark.first")
    commit(broker, "stats", TWEETS, 0, "spark.second")
    found = totals(broker, "stats")
    assert len(found) == len(before) + len(TWEETS)
    assert found[len(before) : 2 * len(before)] == [found[len(before) - 1]] * len(before)
    assert_totals([*found[: len(before)], *found[-len(after) :]], TWEETS)


@pytest.mark.stack
def test_events_of_other_publishers_are_passed_over(broker: BrokerProcess) -> None:
    foreign = [17, None, [], "text", {}, {"totals": 5}, {"totals": {"since": "x"}}, *range(40)]
    before, after = parts(TWEETS, 3)
    publish(broker, "stats", foreign)
    with SyncClient(broker.address) as client:
        assert newest_totals(client, "stats", "tweets_stats") is None
        assert newest_totals(client, "unknown", "tweets_stats") is None
    commit(broker, "stats", before, 0)
    publish(broker, "stats", foreign)
    commit(broker, "stats", after, 1)
    with SyncClient(broker.address) as client:
        newest = newest_totals(client, "stats", "tweets_stats")
    assert newest is not None
    assert_close(msgspec.to_builtins(newest), reference.tweets_totals([window for _, window in sorted(TWEETS.items())]))


@pytest.mark.stack
def test_the_newest_totals_are_found_however_little_is_read_at_a_time(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = with_totals(events(TWEETS), "tweets_stats", None)[:3]
    monkeypatch.setattr(link, "_BYTES_PER_READ", 10_000)
    with SyncClient(broker.address) as client:
        for place, wanted in enumerate((first, second, third)):
            client.publish_many("stats", [wanted, *(Event(id="someone's", msg="x" * 3_000) for _ in range(9))])
            lines, _ = read_some(client, "stats", 0, 1_000)
            assert len(lines) < 10, "all of them are read at once"
            newest = newest_totals(client, "stats", "tweets_stats")
            assert newest is not None
            assert newest.windows == place + 1


def test_only_the_totals_of_the_given_producer_count(broker: BrokerProcess) -> None:
    mine, other = with_totals(events(TWEETS), "tweets_stats", None)[:2]
    with SyncClient(broker.address) as client:
        client.publish("producers", msgspec.structs.replace(mine, producer="backfill.a", sequence=1))
        client.publish("producers", msgspec.structs.replace(other, producer="backfill.b", sequence=1))
        found = [
            newest_totals(client, "producers", "tweets_stats", name) for name in ("backfill.a", None, "backfill.c")
        ]
    assert [one and one.windows for one in found] == [1, 2, None]


def test_totals_of_an_unknown_statistic_are_refused() -> None:
    with pytest.raises(OptionError, match="write tweets_stats or users_stats"):
        WriteOptions.parse({"broker": "b", "topic": "t", "totals": "words"})


def parts(windows: dict[int, Row], count: int) -> tuple[dict[int, Row], dict[int, Row]]:
    """Return the first `count` windows, and the others."""
    ordered = sorted(windows.items())
    return dict(ordered[:count]), dict(ordered[count:])
