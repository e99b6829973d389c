"""The views of a bridge become rows in plain words."""

from typing import Any

import msgspec

from dashboard.figures.cluster import broker_rows, centre_rows, held_rows, views_of
from tweetwire.cluster import BrokerSeen, CentreView, Heartbeat, TopicHeld
from tweetwire.protocol.events import StoredEvent, decode_stored

NOW_MS = 1_795_830_180_000
ORDERS = TopicHeld("orders", 5, 105, {"redis.orders": 40, "kafka.orders": 0})


def heartbeat(broker: str, **members: Any) -> Heartbeat:
    return Heartbeat(
        **{"broker": broker, "address": f"{broker}:8000", "version": "1", "at_ms": 0, "every_s": 5, **members}
    )


def stored(offset: int, view: CentreView, age_s: float) -> StoredEvent:
    event = {"topic": "cluster_view", "offset": offset, "id": "v", "priority": 0}
    date = {"timestamp": NOW_MS - round(age_s * 1000)}
    return decode_stored(msgspec.json.encode(event | date | {"msg": msgspec.to_builtins(view)}))


def test_a_silent_broker_is_described_in_plain_words() -> None:
    seen = [
        BrokerSeen(heartbeat("A", topics=[ORDERS], left_out=2), 1),
        BrokerSeen(heartbeat("B"), 170),
        BrokerSeen(heartbeat("C", is_last=True), 3600),
    ]
    rows = broker_rows(views_of([stored(0, CentreView(centre="redis://c:1", brokers=seen), 10)], NOW_MS), "A")
    assert [(row["address"], row["state"], row["topics"], row["lag"]) for row in rows] == [
        ("A:8000", "present", 3, 40),
        ("B:8000", "silent", 0, 0),
        ("C:8000", "stopped", 0, 0),
    ]
    assert [row["detail"] for row in rows] == [
        "this broker; last heartbeat 11 s ago",
        "no heartbeat for 3 min: the broker or its bridge is down, or cannot reach the engine",
        "its bridge was stopped 1 h ago",
    ]


def test_a_bridge_that_is_gone_makes_all_brokers_silent() -> None:
    view = CentreView(centre="redis://c:1", brokers=[BrokerSeen(heartbeat("A"), 1)])
    (row,) = broker_rows(views_of([stored(0, view, 600)], NOW_MS), "A")
    assert row["detail"] == "this broker; no heartbeat for 10 min: its bridge is stopped, or cannot reach the engine"


def test_the_newest_view_of_each_engine_says_whether_it_answers() -> None:
    views = views_of(
        [
            stored(0, CentreView(centre="b", trouble="old"), 60),
            stored(1, CentreView(centre="a", trouble="connection refused", asked_s=20), 10),
            stored(2, CentreView(centre="c", trouble="no permission", asked_s=None), 10),
            stored(3, CentreView(centre="b", unreadable=2, left_out=1), 5),
        ],
        NOW_MS,
    )
    assert centre_rows(views) == [
        {"centre": "a", "brokers": 0, "detail": "connection refused; it last answered 30 s ago"},
        {
            "centre": "b",
            "brokers": 3,
            "detail": "it last answered 5 s ago; 2 brokers of another version; 1 brokers without room",
        },
        {"centre": "c", "brokers": 0, "detail": "no permission; it has not answered yet"},
    ]


def test_each_mark_of_a_topic_has_a_row_and_two_engines_show_a_broker_once() -> None:
    bills = TopicHeld("bills", 0, 7)
    seen = [BrokerSeen(heartbeat("A", topics=[bills, ORDERS]), 1)]
    events = [stored(at, CentreView(centre=centre, brokers=seen), 1) for at, centre in enumerate("xy")]
    rows = held_rows(views_of(events, NOW_MS))
    assert [(row["topic"], row["mark"], row["lag"], row["next"]) for row in rows] == [
        ("orders", "redis.orders", 40, 105),
        ("orders", "kafka.orders", 0, 105),
        ("bills", "–", None, 7),
    ]


def test_a_clock_that_went_back_makes_no_negative_age() -> None:
    view = CentreView(centre="c", brokers=[BrokerSeen(heartbeat("B"), 2)])
    (row,) = broker_rows(views_of([stored(0, view, -100)], NOW_MS), "A")
    assert row["detail"] == "last heartbeat 2 s ago"
