"""Delayed and expiring events in the core: bounds, failed writes, order, reports and dropped topics."""

import json
from typing import Any

import pytest

from broker.core import Session
from broker.core.delivery import timed
from broker.core.topic import schedule
from tests.broker.core.harness import Core


def delayed(core: Core, session: Session, *delays: str, priority: int = 0) -> None:
    lines = [f'pub t delay={delay} {{"id":"{delay}.{priority}","priority":{priority},"msg":1}}' for delay in delays]
    replies = core.type(session, *lines)
    assert all(reply.startswith("+OK pub t ") for reply in replies), replies


def ids(lines: list[str]) -> list[str]:
    return [json.loads(line)["id"] for line in lines if line[0] == "{"]


def explained(core: Core, session: Session, offset: int) -> dict[str, Any]:
    (reply,) = core.type(session, f"explain t @{offset} as=s")
    report: dict[str, Any] = json.loads(reply.partition(f"@{offset} ")[2])
    return report


@pytest.fixture
def core() -> Core:
    core = Core("t")
    core.type(core.connect(), "sub t as=s from=earliest", "unsub t")
    return core


def test_a_backlog_of_events_that_are_not_due_is_passed_in_short_turns(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "PASS_MAX", 100)
    publisher, consumer = core.connect(), core.connect()
    delayed(core, publisher, *["1h"] * 5000)
    core.publish("now")
    assert ids(core.type(consumer, "sub t as=s prefetch=1")) == []
    core.pass_time(1.5)
    assert ids(core.receive(consumer)) == ["now"]


def test_events_that_are_due_go_out_by_priority_before_newer_ones(core: Core) -> None:
    publisher, consumer = core.connect(), core.connect()
    for priority in (0, 5, 2):
        delayed(core, publisher, "1s", priority=priority)
    core.publish("new", priority=2)
    core.pass_time(2)
    assert ids(core.type(consumer, "sub t as=s prefetch=10")) == ["1s.5", "1s.2", "new", "1s.0"]


def test_no_more_events_are_delayed_than_the_memory_allows(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "SCHEDULED_MAX", 3)
    publisher = core.connect()
    delayed(core, publisher, "1s", "2s", "3s")
    (refusal,) = core.type(publisher, 'pub t delay=1s {"id":"4","msg":1}')
    assert refusal.startswith("-ERR too_many 3 events wait for their due times")
    assert core.type(publisher, 'pub t expires=1s {"id":"5","msg":1}') == ["+OK pub t 3 synced"]
    core.type(core.connect(), "sub t as=s prefetch=10")
    core.pass_time(1.1)
    delayed(core, publisher, "4s")


def test_events_whose_write_failed_are_not_delivered_later(core: Core) -> None:
    publisher, consumer = core.connect(), core.connect()
    core.fail_with = "No space left on device"
    (refusal,) = core.type(publisher, 'pub t delay=1s {"id":"lost","msg":1}')
    assert refusal.startswith("-ERR disk ")
    core.fail_with = None
    delayed(core, publisher, "5s")
    core.type(consumer, "sub t as=s prefetch=10")
    core.pass_time(2)
    assert core.receive(consumer) == []
    core.pass_time(4)
    assert ids(core.receive(consumer)) == ["5s.0"]


def test_explain_reports_delayed_waiting_expired_and_settled(core: Core) -> None:
    session = core.connect()
    core.type(session, 'pub t delay=2s expires=10s {"id":"a","msg":1}', 'pub t expires=5s {"id":"b","msg":1}')
    assert explained(core, session, 0)["state"] == "delayed"
    assert explained(core, session, 1)["state"] == "waiting"
    core.pass_time(6)
    assert explained(core, session, 0)["state"] == "waiting"
    assert explained(core, session, 1) | {"state": "expired", "expires": 1_005_000} == explained(core, session, 1)
    core.type(session, "sub t as=s prefetch=10")
    assert explained(core, session, 0)["state"] == "in_flight"
    assert explained(core, session, 1)["state"] == "expired"
    core.type(session, "ack t @0")
    assert explained(core, session, 0)["state"] == "settled"


def test_an_expired_event_gets_no_dead_letter_and_ends_its_tries(core: Core) -> None:
    consumer = core.connect()
    core.type(consumer, "sub t as=s backoff=10s tries=2", 'pub t expires=5s {"id":"a","msg":1}')
    assert core.type(consumer, "nack t a") == ["+OK nack t 1"]
    core.pass_time(11)
    assert core.receive(consumer) == []
    subscription = core.broker.topics["t"].subscriptions["s"]
    assert (subscription.expired.count, subscription.waiting, len(subscription.attempts)) == (1, 0, 0)
    assert core.broker.topics["dead_letters"].next == 0
    assert core.broker.counts["acked"] == 0


def test_a_paused_subscription_gets_due_events_when_it_is_resumed(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s prefetch=10", "pause t as=s")
    delayed(core, session, "1s")
    core.pass_time(5)
    assert core.receive(session) == []
    assert ids(core.type(session, "resume t as=s")) == ["1s.0"]


def test_a_dropped_topic_leaves_no_delayed_events(core: Core) -> None:
    session = core.connect()
    delayed(core, session, "1s", "1h")
    assert core.type(session, "drop t") == ["+OK drop t"]
    assert (core.broker.work.agenda.count, core.broker.work.agenda.topics) == (0, set())
    core.type(session, "sub t as=s create")
    core.publish("new")
    core.pass_time(2)
    assert ids(core.receive(session)) == ["new"]


def test_due_events_are_delivered_to_each_subscription_once(core: Core) -> None:
    one, other = core.connect(), core.connect()
    core.type(one, "sub t as=s prefetch=10")
    core.type(other, "sub t as=other prefetch=10")
    delayed(core, core.connect(), "1s", "2s")
    core.pass_time(3)
    assert ids(core.receive(one)) == ids(core.receive(other)) == ["1s.0", "2s.0"]
    core.type(one, "ack t @0 @1")
    core.restart(is_folded=True)
    again = core.connect()
    assert ids(core.type(again, "sub t as=s prefetch=10")) == []
    assert ids(core.type(again, "unsub t", "sub t as=other prefetch=10")) == ["1s.0", "2s.0"]


def test_a_subscription_to_a_pattern_gets_the_due_events_of_each_topic(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "EXPIRE_MAX", 3)
    session, publisher = core.connect(), core.connect()
    assert core.type(session, "sub many.* as=all prefetch=2 from=earliest")[0].startswith("+OK sub many.* ")
    for topic in ("many.a", "many.b"):
        lines = [f'pub {topic} delay={n + 1}s {{"id":"{topic}.{n}","msg":1}}' for n in range(3)]
        lines += [f'pub {topic} delay=1s expires=2s {{"id":"{topic}.expired.{n}","msg":1}}' for n in range(10)]
        core.type(publisher, *lines)
    assert core.receive(session) == []
    assert core.type(session, "unsub many.* as=all") == ["+OK unsub many.*"]
    core.pass_time(5)
    taken: list[str] = []
    lines = core.type(session, "sub many.* as=all prefetch=2")
    for _ in range(100):
        for line in lines:
            if line[0] == "{":
                event = json.loads(line)
                taken.append(event["id"])
                lines += core.type(session, f"ack {event['topic']} @{event['offset']}")
        core.pass_time(0.1)
        lines = core.receive(session)
    assert sorted(taken) == [f"many.{topic}.{n}" for topic in "ab" for n in range(3)]
    assert core.broker.counts["expired"] == 20
    assert not core.bugs


def test_a_consumer_that_settles_expired_events_one_by_one_gives_others_their_turn() -> None:
    core = Core("t")
    publisher = core.connect()
    core.type(publisher, *(f'pub t {{"id":"{n}","msg":1,"expires":"1s"}}' for n in range(timed.EXPIRE_MAX // 5)))
    core.pass_time(2)
    core.type(core.connect(), "sub t as=s from=earliest")
    expired = core.broker.topics["t"].subscriptions["s"].expired
    assert 0 < expired.count < timed.EXPIRE_MAX // 5
    core.pass_time(1)
    assert expired.count == timed.EXPIRE_MAX // 5
    assert timed.EXPIRE_MAX // 5 - 1 in expired
