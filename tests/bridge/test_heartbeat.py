"""A heartbeat says what a broker holds, and stays within its limit."""

import msgspec
import pytest

from bridge.central import HEARTBEAT_BYTES_MAX
from bridge.heartbeat import TOPICS_MAX, advertised, heartbeat_of
from tweetwire.cluster import CLUSTER_VIEW, TopicHeld, read_heartbeat


def topic(earliest: int, end: int, **lags: int) -> dict[str, object]:
    return {"earliest": earliest, "next": end, "marks": {name: {"lag": lag} for name, lag in lags.items()}}


def test_it_has_the_topics_with_marks_first_and_their_lags() -> None:
    topics = {"bills": topic(0, 7), "orders": topic(5, 105, kafka=3, redis=9), CLUSTER_VIEW: topic(0, 1)}
    found = heartbeat_of({"identity": "A", "topics": topics}, "a:8000", 17, 5)
    assert found.topics == [TopicHeld("orders", 5, 105, {"kafka": 3, "redis": 9}), TopicHeld("bills", 0, 7)]
    assert (found.broker, found.address, found.at_ms, found.every_s, found.is_last) == ("A", "a:8000", 17, 5, False)
    assert (found.lag(), found.lag("kafka"), found.lag("nats")) == (9, 3, 0)
    assert read_heartbeat(msgspec.json.encode(found)) == found


@pytest.mark.parametrize("length", [1, 110])
def test_a_broker_with_many_topics_has_a_heartbeat_within_the_limit(length: int) -> None:
    names = [f"{number:06}{'x' * length}" for number in range(2000)]
    marks = {f"{mark:03}{'m' * length}": mark for mark in range(16)}
    found = heartbeat_of({"identity": "A", "topics": {name: topic(0, 1, **marks) for name in names}}, "a:1", 0, 5)
    assert len(msgspec.json.encode(found)) <= HEARTBEAT_BYTES_MAX
    assert len(found.topics) <= TOPICS_MAX
    assert len(found.topics) + found.left_out == 2000
    assert [one.topic for one in found.topics] == names[: len(found.topics)]
    assert found.topics


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("127.0.0.1:8000", "berlin:8000"),
        ("localhost:8000", "berlin:8000"),
        ("[::1]:8000", "berlin:8000"),
        ("10.0.0.7:8000", "10.0.0.7:8000"),
        ("broker.example:1", "broker.example:1"),
        ("[2001:db8::1]:9", "[2001:db8::1]:9"),
    ],
)
def test_a_loopback_address_is_shown_with_the_name_of_the_machine(address: str, shown: str) -> None:
    assert advertised(address, "berlin") == shown
