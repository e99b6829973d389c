"""The tally counts events of topics, in the form in which the change stream and Spark write them."""

import msgspec
import pytest

from demo.evidence import CountedWindow
from demo.tally import Tally
from tests.dashboard.samples import tweets_window, users_window
from tweetwire import StoredEvent

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
    tally.note_events("tweets", [change(0, "1", "insert"), change(1, "2", "snapshot"), change(2, "1", "update")])
    assert tally.brought["tweets"] == {"1": 1, "2": 1}
    assert tally.counted == {10_000: 2}


def test_a_document_brought_twice_counts_twice(tally: Tally) -> None:
    tally.note_events("tweets", [change(0, "1", "insert"), change(1, "1", "insert")])
    assert tally.brought["tweets"] == {"1": 2}


def test_a_change_without_a_time_has_the_brokers(tally: Tally) -> None:
    tally.note_events("tweets", [change(0, "1", "insert", at=None)])
    assert tally.counted == {90_000: 1}


def test_users_are_brought_and_fall_in_no_window(tally: Tally) -> None:
    messages = [{"op": op, "at": 1, "document": {"tweets_seen": n}} for n, op in enumerate(("insert", "update"))]
    tally.note_events("users", [event(offset, "7", message, "users") for offset, message in enumerate(messages)])
    assert tally.brought["users"] == {"7": 1}
    assert tally.seen == {"7": 1}
    assert not tally.counted


def test_a_final_window_of_tweets_counts_its_tweets(tally: Tally) -> None:
    message = tweets_window(10, tweets=41) | {"late": 1, "per_second": 4.1}
    tally.note_events(
        "tweets_stats",
        [event(0, "w", message), event(1, "w", {**message, "is_final": False}), event(2, "x", "no window")],
    )
    assert tally.windows["tweets_stats"] == [CountedWindow(1_795_830_190_000, 41, late=1)]
    assert tally.latest[0].per_second == 4.1


def test_a_final_window_of_users_gives_its_tweets_as_a_mean(tally: Tally) -> None:
    message = users_window(10) | {"active_users": 3, "tweets_per_user": 41 / 3}
    nobody = users_window(10) | {"active_users": 0, "tweets_per_user": None, "late": 2}
    tally.note_events("users_stats", [event(0, "w", message), event(1, "w", nobody)])
    assert [(found.tweets, found.late) for found in tally.windows["users_stats"]] == [(41, 0), (0, 2)]
