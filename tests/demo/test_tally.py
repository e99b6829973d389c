"""The tally counts what the topics bring, as the change stream and Spark write it."""

import msgspec
import pytest

from broker import StoredEvent
from demo.evidence import Window
from demo.tally import Tally

WINDOW_MS = 10_000


def event(offset: int, name: str, msg: object, topic: str = "tweets") -> StoredEvent:
    return StoredEvent(
        topic=topic, offset=offset, timestamp=99_000, id=name, priority=0, msg=msgspec.Raw(msgspec.json.encode(msg))
    )


def change(offset: int, name: str, op: str, at: int | None = 12_345) -> StoredEvent:
    return event(offset, name, {"op": op, "collection": "tweets", "document": {"text": "hi"}, "at": at})


@pytest.fixture
def tally() -> Tally:
    return Tally(WINDOW_MS)


def test_inserts_and_snapshots_bring_documents_each_counted_in_its_window(tally: Tally) -> None:
    tally.take("tweets", [change(0, "1", "insert"), change(1, "2", "snapshot"), change(2, "1", "update")])
    assert tally.brought["tweets"] == {"1": 1, "2": 1}
    assert tally.counted == {10_000: 2}


def test_a_document_brought_twice_counts_twice(tally: Tally) -> None:
    tally.take("tweets", [change(0, "1", "insert"), change(1, "1", "insert")])
    assert tally.brought["tweets"] == {"1": 2}


def test_a_change_without_a_time_has_the_brokers(tally: Tally) -> None:
    tally.take("tweets", [change(0, "1", "insert", at=None)])
    assert tally.counted == {90_000: 1}


def test_users_are_brought_and_fall_in_no_window(tally: Tally) -> None:
    messages = [{"op": op, "at": 1, "document": {"tweets_seen": n}} for n, op in enumerate(("insert", "update"))]
    tally.take("users", [event(offset, "7", message, "users") for offset, message in enumerate(messages)])
    assert tally.brought["users"] == {"7": 1}
    assert tally.seen == {"7": 1}
    assert not tally.counted


def test_a_final_window_of_tweets_tells_its_tweets(tally: Tally) -> None:
    window = {"start": "2026-11-27T22:00:10.000Z", "end": "2026-11-27T22:00:20.000Z"}
    message = {"window": window, "tweets": 41, "late": 1, "per_second": 4.1, "is_final": True, "kinds": {}}
    tally.take("tweets_stats", [event(0, "w", message), event(1, "w", {**message, "is_final": False})])
    assert tally.windows["tweets_stats"] == [Window(1_795_816_810_000, 41, late=1)]
    assert tally.latest[0].per_second == 4.1


def test_a_final_window_of_users_tells_its_tweets_as_a_mean(tally: Tally) -> None:
    window = {"start": "2026-11-27T22:00:10.000Z", "end": "2026-11-27T22:00:20.000Z"}
    message = {"window": window, "active_users": 3, "tweets_per_user": 41 / 3, "is_final": True}
    nobody = {"window": window, "active_users": 0, "tweets_per_user": None, "late": 2, "is_final": True}
    tally.take("users_stats", [event(0, "w", message), event(1, "w", nobody)])
    assert [(found.tweets, found.late) for found in tally.windows["users_stats"]] == [(41, 0), (0, 2)]
