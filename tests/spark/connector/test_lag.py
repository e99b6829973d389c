"""The log of a query that has a backlog."""

from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress
from structlog.testing import capture_logs

from spark.connector.lag import Lag
from spark.connector.progress import ReadPosition, TopicPosition


def position(**offsets: int) -> dict[str, Any]:
    return ReadPosition({topic: TopicPosition(offset) for topic, offset in offsets.items()}).to_json()


def progress(
    end: dict[str, Any], latest: dict[str, Any] | None, per_second: float, rows: int = 7
) -> StreamingQueryProgress:
    """Return the progress that Spark reports for a batch of `rows` rows up to `end`."""
    rates = {"numInputRows": rows, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": per_second}
    return StreamingQueryProgress.fromJson(
        {
            "id": str(uuid4()),
            "runId": str(uuid4()),
            "name": "tweets-stats",
            "timestamp": "2026-01-02T03:04:05.000Z",
            "batchId": 3,
            "batchDuration": 900,
            "stateOperators": [],
            "sources": [
                {"description": "tweetwire", "startOffset": None, "endOffset": end, "latestOffset": latest, **rates}
            ],
            "sink": {"description": "tweetwire", "numOutputRows": 1},
            **rates,
        }
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def told(lag: Lag, *all_progress: StreamingQueryProgress | None) -> list[tuple[Any, ...]]:
    with capture_logs() as logs:
        for one in all_progress:
            lag.log_progress(one)
    assert all(log["query"] == "tweets-stats" for log in logs)
    return [(log["event"], log.get("to_go"), log.get("per_second")) for log in logs]


def test_a_lag_of_ten_seconds_is_reported_and_its_end_once(clock: Clock) -> None:
    lag = Lag("tweets-stats", clock)
    heads = position(tweets=9_000, users=2_001)
    assert told(
        lag,
        None,
        progress(position(tweets=0, users=0), heads, 1_100.04),
        progress(position(tweets=0, users=0), heads, 1_100),
        progress(position(tweets=2_000, users=1_001), heads, 799.9),
        progress(position(tweets=2_000, users=1_001), heads, 800.2),
        progress(position(tweets=9_000, users=2_001), heads, 800),
    ) == [
        ("query is catching up", 11_001, 1_100),
        ("query is catching up", 11_001, 1_100),
        ("query is catching up", 8_000, 800),
        ("query has caught up", None, None),
    ]


def test_a_batch_without_rows_and_an_unreachable_broker_log_nothing(clock: Clock) -> None:
    lag = Lag("tweets-stats", clock)
    behind = position(tweets=0)
    assert told(lag, progress(behind, position(tweets=1_000), 0.0, 0), progress(behind, None, 5.0)) == []


def test_the_lag_is_reported_every_ten_seconds(clock: Clock) -> None:
    lag = Lag("tweets-stats", clock)
    assert lag.is_due
    lag.log_progress(None)
    clock.now = 9.9
    assert not lag.is_due
    clock.now = 10.0
    assert lag.is_due
