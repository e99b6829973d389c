"""The backfill with a real mongod and a real broker: it publishes the figures of the live statistics, each window once."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from spark.apps.backfill.collection import TWEETS, CollectionReader, bounds
from spark.apps.backfill.run import backfill, compute
from spark.apps.backfill.settings import BackfillSettings
from tests.spark import reference, samples
from tests.spark.comparison import assert_close, assert_totals, assert_tweets_equal
from tests.spark.reference import Row
from tests.spark.topics import stored, totals, windows
from tests.support.processes import BrokerProcess, Process
from tests.support.users import entry
from tests.support.waiting import until
from tweetwire import Event, SyncClient
from tweetwire.protocol.errors import StartError

WINDOW_MS = 500
WITHIN_S = 180
START = datetime(2025, 3, 1, tzinfo=UTC)

pytestmark = [pytest.mark.stack, pytest.mark.timeout(420)]


@pytest.fixture
def database(mongo_url: str) -> Iterator[Database[dict[str, Any]]]:
    """A separate database for each test."""
    with MongoClient[dict[str, Any]](mongo_url, tz_aware=True) as client:
        name = f"backfill_{uuid4().hex[:8]}"
        yield client[name]
        client.drop_database(name)


def settings(mongo_url: str, database: str, broker: BrokerProcess, *flags: str) -> BackfillSettings:
    given = ["--mongo-url", mongo_url, "--database", database, "--broker", broker.address]
    return BackfillSettings(_cli_parse_args=[*given, "--window", f"{WINDOW_MS}ms", "--rows", "200", *flags])


def tweets(count: int, *, step_ms: int = 7) -> list[dict[str, Any]]:
    chance = random.Random(5)
    return [
        {**samples.tweet(chance, number), "ingested_at": START + timedelta(milliseconds=number * step_ms)}
        for number in range(count)
    ]


def users(count: int) -> list[dict[str, Any]]:
    return [
        {"_id": str(1000 + number), "first_seen": START + timedelta(milliseconds=number * 70)}
        for number in range(count)
    ]


def test_the_figures_are_those_of_the_live_statistics(
    broker: BrokerProcess,
    mongo_url: str,
    database: Database[dict[str, Any]],
    spark_session: SparkSession,
    tmp_path: Path,
) -> None:
    documents, authors = tweets(600), users(40)
    database.create_collection("tweets")
    database.create_collection("users")
    watch = ("change_stream", "--mongo-url", mongo_url, "--database", database.name, "--broker", broker.address)
    with Process(tmp_path / "change_stream.log", *watch, "--metrics-port", 0, "--log-json") as changes:
        for first in range(0, 600, 100):
            database.tweets.insert_many(documents[first : first + 100])
            database.users.insert_many(authors[first // 15 : first // 15 + 6])
        database.users.update_one({"_id": "1000"}, {"$set": {"name": "someone"}})
        until(lambda: (len(stored(broker, "tweets")), len(stored(broker, "users"))) == (600, 37), WITHIN_S, changes.log)
        assert changes.terminate() == 0
    # The backfill counts only windows that have ended, and the newest tweet is in the current one.
    this_one = window_now()
    until(lambda: window_now() > this_one)
    outcome = compute(spark_session, settings(mongo_url, database.name, broker, "--complete-after", "0s"))
    assert (outcome.tweets, outcome.new_users) == (600, 36)
    rows = [*stored(broker, "tweets"), *stored(broker, "users")]
    # The tests of the live statistics make the same comparison.
    assert_tweets_equal(windows(broker, "tweets_stats_backfill"), reference.tweets_stats(rows[:600], WINDOW_MS))
    expected = reference.users_stats(rows, WINDOW_MS)
    found = windows(broker, "users_stats_backfill")
    assert_close(found, {reference.iso(start): window for start, window in expected.items()})
    assert_totals(totals(broker, "users_stats_backfill"), expected, reference.users_totals)


def test_a_document_counts_once_although_the_topic_has_it_several_times(
    broker: BrokerProcess, mongo_url: str, database: Database[dict[str, Any]], spark_session: SparkSession
) -> None:
    documents = tweets(100)
    database.tweets.insert_many(documents)
    rows = as_rows(documents)
    changes = [json.loads(row["msg"]) for row in rows]
    anew = [{**change, "op": "snapshot", "at": change["at"] + 86_400_000} for change in changes]
    with SyncClient(broker.address) as client:
        client.publish_many("tweets", [Event(id=one["document"]["_id"], msg=one) for one in [*changes, *anew]])
    outcome = compute(spark_session, settings(mongo_url, database.name, broker, "--job", "tweets-stats"))
    assert outcome.tweets == len(documents)
    found = {start: window["tweets"] for start, window in windows(broker, "tweets_stats_backfill").items()}
    expected = reference.tweets_stats(rows, WINDOW_MS)
    assert found == {reference.iso(start): window["tweets"] for start, window in expected.items()}


def window_now() -> int:
    return time.time_ns() // 1_000_000 // WINDOW_MS


def as_rows(documents: list[dict[str, Any]]) -> list[Row]:
    """Return the rows that the stream would read if each document had been stored when it was ingested."""
    rows = []
    for place, document in enumerate(documents):
        at = round(document["ingested_at"].timestamp() * 1000)
        plain = {name: value for name, value in document.items() if name != "ingested_at"}
        rows.append(samples.row(place, {"op": "insert", "document": plain, "at": at}, arrived=at))
    return rows


def test_old_tweets_count_at_their_ingestion_and_each_window_is_published_once(
    broker: BrokerProcess, mongo_url: str, database: Database[dict[str, Any]], spark_session: SparkSession
) -> None:
    documents = tweets(500)
    database.tweets.insert_many(random.Random(1).sample(documents[:300], 300))
    given = settings(mongo_url, database.name, broker, "--job", "tweets-stats", "--event-time", "ingested")
    first = compute(spark_session, given).published["tweets_stats_backfill"]
    # The last window of the first run is taken as complete by its age.
    database.tweets.insert_many(documents[300:])
    database.tweets.insert_one({**documents[0], "_id": "of today", "ingested_at": datetime.now(UTC)})
    second = compute(spark_session, given).published["tweets_stats_backfill"]
    expected = reference.tweets_stats([*as_rows(documents[:300])], WINDOW_MS)
    last = max(expected)
    later = reference.tweets_stats(as_rows(documents), WINDOW_MS)
    expected |= {start: window for start, window in later.items() if start > last}
    for window in expected.values():
        window["lag_ms"] = {"p50": None, "p95": None}
    assert_tweets_equal(windows(broker, "tweets_stats_backfill"), expected)
    assert_totals(totals(broker, "tweets_stats_backfill"), expected)
    assert (first.known, second.known) == (0, first.stored)
    assert first.stored + second.stored == len(expected)


def test_ranges_hold_every_document_once_whatever_its_id_is(mongo_url: str, database: Database[dict[str, Any]]) -> None:
    ids = [*map(str, range(400)), *range(50), *(ObjectId() for _ in range(50)), {"a": 1}, True]
    database.tweets.insert_many([{"_id": one, "sentiment": place} for place, one in enumerate(ids)])
    assert 1 <= len(bounds(database.tweets, 100)) <= 5
    options = {"url": mongo_url, "database": database.name, "collection": "tweets", "rows": "100", "timeout_ms": "5000"}
    reader = CollectionReader(options, TWEETS)
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["sentiment"] for row in found) == list(range(len(ids)))


def test_a_value_of_another_type_is_null(mongo_url: str, database: Database[dict[str, Any]]) -> None:
    database.tweets.insert_one(
        {"_id": "1", "ingested_at": START, "sentiment": "good", "hashtags": "a", "user": {"id_str": 5}, "kind": None}
    )
    options = {"url": mongo_url, "database": database.name, "collection": "tweets", "rows": "9", "timeout_ms": "5000"}
    reader = CollectionReader(options, TWEETS)
    [part] = reader.partitions()
    [row] = [row for batch in reader.read(part) for row in batch.to_pylist()]
    assert row["_id"] == "1"
    assert row["ingested_at"] == round(START.timestamp() * 1000)
    assert (row["sentiment"], row["kind"], row["user"]["id_str"]) == (None, None, None)


def refused(*flags: str) -> str:
    """Run the backfill with settings with which it cannot start. Return its one error message."""
    command = [sys.executable, "-m", "spark", "backfill", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_without_mongodb_the_backfill_reports_that(broker: BrokerProcess) -> None:
    sentence = refused("--broker", broker.address, "--mongo-url", "mongodb://127.0.0.1:1", "--mongo-timeout", "100ms")
    assert "no MongoDB answers at --mongo-url (127.0.0.1:1: Connection refused); start one, or correct" in sentence


@pytest.mark.parametrize(
    ("may_read", "event_time", "sentence"),
    [
        ('["users", "tweets_stats_backfill"]', "stored", "forbidden spark needs a subscribe pattern for tweets;"),
        ('["tweets", "users"]', "stored", "forbidden spark needs a subscribe pattern for tweets_stats_backfill;"),
        ('["tweets", "users"]', "ingested", "forbidden spark needs a subscribe pattern for tweets_stats_backfill;"),
        ('["tweets_stats_backfill"]', "ingested", "no MongoDB answers"),
    ],
)
def test_the_backfill_needs_the_right_to_read_its_topics(
    tmp_path: Path, may_read: str, event_time: str, sentence: str
) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("spark", "s-secret", subscribe=may_read))
    with BrokerProcess(tmp_path / "broker", "--users", users) as broker:
        flags = ["--job", "tweets-stats", "--event-time", event_time, "--mongo-timeout", "100ms"]
        login = ["--broker-user", "spark", "--broker-token", "s-secret"]
        given = settings("mongodb://127.0.0.1:1", "none", broker, *flags, *login)
        with pytest.raises(StartError, match=sentence):
            anyio.run(backfill, given, anyio.Event())
