"""Leaving a subscription and ending it: the effect on other consumers, and the lines sent to each connection."""

import json

import pytest

from tests.broker.core.harness import Core
from tweetwire.protocol.notices import Ended, ended_line, read_ended


@pytest.fixture
def core() -> Core:
    return Core("t")


def events(lines: list[str]) -> list[str]:
    return [json.loads(line)["id"] for line in lines if line.startswith("{")]


def test_a_member_that_leaves_takes_nothing_from_the_others(core: Core) -> None:
    staying, leaving = core.connect(), core.connect()
    core.type(staying, "sub t as=s prefetch=1")
    core.type(leaving, "sub t as=s prefetch=1")
    core.publish("a", "b", "c")
    assert len(events(core.receive(staying)) + events(core.receive(leaving))) == 2
    assert core.type(leaving, "unsub t as=s") == ["+OK unsub t"]
    core.type(staying, "sub t as=s prefetch=9")
    assert core.broker.topics["t"].subscriptions["s"].in_flight == 3
    assert core.broker.topics["t"].subscriptions["s"].attempts == {}, "leaving is no failed try"
    assert core.type(leaving, "unsub t as=s") == [
        "-ERR not_subscribed this connection has no subscription s to t; to end it for all: unsub t as=s end"
    ]


def test_a_durable_subscription_keeps_its_backlog_when_its_only_member_leaves(core: Core) -> None:
    session = core.connect()
    core.publish("a", "b")
    assert events(core.type(session, "sub t as=s from=earliest")) == ["a"]
    assert core.type(session, "unsub t") == ["+OK unsub t"]
    core.restart()
    assert events(core.type(core.connect(), "sub t as=s prefetch=9")) == ["a", "b"]


def test_a_client_that_left_is_not_attached_again_by_resume(core: Core) -> None:
    session = core.connect()
    core.type(session, "hello worker", "sub t as=s", "unsub t as=s")
    core.disconnect(session)
    core.restart()
    assert core.type(core.connect(), "hello worker resume") == ["+OK hello worker"]


def test_end_forgets_the_backlog_and_gives_every_other_member_the_reason(core: Core) -> None:
    one, other, ender = core.connect(), core.connect(), core.connect()
    core.publish("a", "b", "c")
    core.type(one, "sub t as=s from=earliest")
    core.type(other, "sub t as=s")
    assert core.type(ender, "hello boss", "unsub t as=s end") == ["+OK hello boss", "+OK unsub t"]
    assert core.receive(one) == core.receive(other) == ["!ended t as=s boss ended the subscription"]
    assert core.type(one, "ack t @0") == ["-ERR not_subscribed this connection has no subscription to t"]
    assert core.type(ender, "unsub t as=s end") == ["-ERR not_subscribed t has no subscription s"]
    core.restart()
    assert core.broker.topics["t"].subscriptions == {}


@pytest.mark.parametrize("is_redriven", [True, False], ids=["redrive", "dead letter"])
def test_an_event_on_its_way_when_a_subscription_ends_does_not_reach_the_next_of_its_name(
    core: Core, *, is_redriven: bool
) -> None:
    session = core.connect()
    core.publish("a", "b")
    core.type(session, "sub t as=s from=earliest tries=1 prefetch=2")
    core.hold = not is_redriven
    core.type(session, "nack t @0", "nack t @1", *(["redrive t as=s all rate=1/s"] if is_redriven else []))
    core.type(session, "unsub t as=s end", "sub t as=s from=latest")
    core.hold = False
    core.pass_time(5)
    core.restart()
    assert core.type(core.connect(), "sub t as=s") == ["+OK sub t as=s from=2 pending=0 prefetch=1"]
    assert core.broker.topics["t"].subscriptions["s"].dead == {}


def test_a_member_that_ends_its_subscription_gets_only_the_reply(core: Core) -> None:
    session, other = core.connect(), core.connect()
    core.type(session, "sub t as=s")
    core.type(other, "sub t as=s")
    assert core.type(session, "unsub t as=s end") == ["+OK unsub t"]
    assert core.receive(other) == ["!ended t as=s conn-1 ended the subscription"]


def test_a_notice_passes_replies_that_wait_for_the_disk(core: Core) -> None:
    member = core.connect()
    core.type(member, "sub t as=s")
    core.hold = True
    assert core.type(member, 'pub t {"id":"a","msg":1}') == []
    core.type(core.connect(), "unsub t as=s end")
    assert core.receive(member) == ["!ended t as=s conn-2 ended the subscription"]
    core.hold = False
    core.carry_out()
    assert core.receive(member) == ["+OK pub t 0 synced"]


def test_an_anonymous_subscription_ends_with_a_plain_unsub(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t")
    assert core.type(session, "unsub t", "unsub t") == [
        "+OK unsub t",
        "-ERR not_subscribed this connection has no subscription to t",
    ]
    assert core.broker.topics["t"].subscriptions == {}


def test_end_without_a_name_is_refused_and_changes_nothing(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s")
    (refusal,) = core.type(session, "unsub t end")
    assert refusal.startswith("-ERR bad_arguments end needs the name of the subscription")
    assert "s" in core.broker.topics["t"].subscriptions


@pytest.mark.parametrize("reason", ["bob ended the subscription", "two\nlines\r\nand  spaces", "ü"])
def test_a_notice_is_one_line_and_read_as_it_was_written(reason: str) -> None:
    line = ended_line(Ended("t", "s", reason))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert read_ended(line[:-1]) == Ended("t", "s", " ".join(reason.split()))


@pytest.mark.parametrize("line", [b"!", b"!ended", b"!ended t", b"!later news", b"!ended t as=s", b"!\xff"])
def test_an_unknown_notice_is_ignored(line: bytes) -> None:
    assert read_ended(line) is None
