"""Heartbeats of other machines are read with care, and views stay within their limit."""

from typing import Any

import msgspec
import pytest

from tweetwire.cluster import (
    BrokerSeen,
    CentreView,
    Heartbeat,
    TopicHeld,
    bounded_heartbeat,
    bounded_view,
    newest_views,
    read_heartbeat,
    standing_of,
)
from tweetwire.protocol.events import StoredEvent, decode_stored


def heartbeat(broker: str = "A", **members: Any) -> Heartbeat:
    return Heartbeat(**{"broker": broker, "address": "a:1", "version": "1", "at_ms": 0, "every_s": 5.0, **members})


def stored(offset: int, msg: Any) -> StoredEvent:
    event = {"topic": "cluster_view", "offset": offset, "timestamp": 1000 + offset, "id": "v", "priority": 0}
    return decode_stored(msgspec.json.encode(event | {"msg": msg}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"{}",
        b"[" * 100_000,
        b'{"broker":1}',
        msgspec.json.encode(msgspec.to_builtins(heartbeat()) | {"form": 2}),
        msgspec.json.encode(msgspec.to_builtins(heartbeat()) | {"topics": [{"topic": "t"}]}),
    ],
)
def test_other_content_is_not_a_heartbeat(data: bytes) -> None:
    assert read_heartbeat(data) is None


def test_members_of_a_later_release_are_ignored() -> None:
    assert read_heartbeat(msgspec.json.encode(msgspec.to_builtins(heartbeat()) | {"mood": "good"})) == heartbeat()


@pytest.mark.parametrize(
    ("age_s", "is_last", "standing"),
    [(0, False, "present"), (19, False, "present"), (21, False, "silent"), (0, True, "stopped"), (99, True, "stopped")],
)
def test_a_broker_is_silent_after_three_missing_heartbeats(age_s: float, is_last: bool, standing: str) -> None:
    assert standing_of(heartbeat(is_last=is_last), age_s) == standing


def test_a_view_that_is_too_large_loses_topics_and_then_brokers_and_counts_them() -> None:
    topics = [TopicHeld(f"topic{number}", 0, number, {"redis": 1}) for number in range(100)]
    seen = [BrokerSeen(heartbeat(f"B{number:03}", topics=topics), 1.0) for number in range(300)]
    view = CentreView(centre="redis://c:1", brokers=seen)
    assert bounded_view(view, 10_000_000) == view
    fewer = bounded_view(view, 256 << 10)
    assert len(msgspec.json.encode(fewer)) <= 256 << 10
    assert len(fewer.brokers) == 300
    assert all(len(one.heartbeat.topics) + one.heartbeat.left_out == 100 for one in fewer.brokers)
    few = bounded_view(view, 4000)
    assert len(msgspec.json.encode(few)) <= 4000
    assert len(few.brokers) + few.left_out == 300
    assert few.brokers


def test_a_heartbeat_without_room_for_a_topic_has_none() -> None:
    found = bounded_heartbeat(heartbeat(topics=[TopicHeld("x" * 100, 0, 1)]), 10)
    assert (found.topics, found.left_out) == ([], 1)


def test_the_newest_view_of_each_engine_counts_and_other_events_are_left_out() -> None:
    old, new = CentreView(centre="b", trouble="down"), CentreView(centre="b")
    other = CentreView(centre="a", unreadable=3)
    events = [stored(0, msgspec.to_builtins(old)), stored(1, "hello"), stored(2, msgspec.to_builtins(other))]
    events += [stored(3, msgspec.to_builtins(new)), stored(4, {"centre": 7}), stored(5, None)]
    assert list(newest_views(events).items()) == [("a", (other, 1002)), ("b", (new, 1003))]
