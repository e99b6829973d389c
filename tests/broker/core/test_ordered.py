"""Ordered subscriptions: the events of a key go to one consumer at a time, in the order of their offsets."""

import json
from typing import Any

import pytest

from broker.core import Session
from broker.core.delivery.ordered import EXPIRED_A_TURN, PARKED_A_TURN
from broker.core.outbox import HIGH_WATER_BYTES
from broker.core.topic.key_queue import FLYING_MAX
from broker.core.topic.ordered_backlog import OrderedBacklog
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import answer, codes
from tweetwire.protocol.verbs.settling import Ack


@pytest.fixture
def core() -> Core:
    return Core("t")


def publish(core: Core, *keys: str | None, **members: Any) -> None:
    """Publish an event for each key, with the key as its message."""
    session = core.connect()
    for number, key in enumerate(keys):
        event = {"id": f"{key}{number}", "msg": key, **({} if key is None else {"key": key}), **members}
        (reply,) = core.type(session, f"pub t {json.dumps(event)}")
        assert reply.startswith("+OK pub"), reply
    core.disconnect(session)


def attach(core: Core, prefetch: int = 100, options: str = "ordered=key") -> Session:
    session = core.connect()
    (reply, *_) = core.type(session, f"sub t as=s prefetch={prefetch} from=earliest {options}")
    assert reply.startswith("+OK sub"), reply
    return session


def offsets(lines: list[str]) -> list[int]:
    return [json.loads(line)["offset"] for line in lines if line.startswith("{")]


def received(core: Core, session: Session) -> list[int]:
    return offsets(core.receive(session))


def attached(core: Core, count: int, prefetch: int = 100, options: str = "ordered=key") -> list[Session]:
    sessions = [attach(core, prefetch, options) for _ in range(count)]
    for session in sessions:
        core.receive(session)
    return sessions


def test_events_of_a_key_stay_with_the_consumer_that_has_it(core: Core) -> None:
    first, second = attached(core, 2)
    publish(core, "a", "b", "a", "b", "a")
    mine, other = received(core, first), received(core, second)
    assert sorted([mine, other]) == [[0, 2, 4], [1, 3]]


def test_a_free_key_goes_to_any_consumer(core: Core) -> None:
    first, second = attached(core, 2, prefetch=1)
    publish(core, "a", "a", "b")
    one = received(core, first) + received(core, second)
    assert sorted(one) == [0, 2], "offset 1 waits for offset 0, while another consumer has room"


def test_the_next_event_of_a_key_is_delivered_when_the_previous_one_is_settled(core: Core) -> None:
    (session,) = attached(core, 1, prefetch=1)
    publish(core, "a", "a", "a")
    assert received(core, session) == [0]
    assert offsets(core.type(session, "ack t @0")) == [1]
    assert offsets(core.type(session, "ack t @1")) == [2]


def test_the_order_of_a_key_wins_over_priority(core: Core) -> None:
    publish(core, "a", "b")
    publish(core, "a", priority=9)
    (session,) = [core.connect()]
    assert offsets(core.type(session, "sub t as=s prefetch=100 from=earliest ordered=key")) == [0, 1, 2]


def test_events_without_a_key_are_not_ordered(core: Core) -> None:
    first, second = attached(core, 2, prefetch=1)
    publish(core, None, None, None)
    assert sorted(received(core, first) + received(core, second)) == [0, 1]
    assert offsets(core.type(first, "nack t @0", "nack t @1")) != []


def test_a_nack_takes_back_the_later_events_of_its_key_and_no_others(core: Core) -> None:
    (session,) = attached(core, 1)
    publish(core, "a", "b", "a", "a")
    assert received(core, session) == [0, 1, 2, 3]
    lines = core.type(session, 'nack t @2 "no"')
    assert [(json.loads(line)["offset"], json.loads(line).get("try")) for line in lines if line[0] == "{"] == [
        (2, 2),
        (3, None),
    ]
    assert codes(core.type(session, "ack t @0 @1 @2 @3")) == ["+"]
    assert answer(core, session, "stats t")["topics"]["t"]["subscriptions"]["s"]["settled"] == 4


def test_an_event_that_was_taken_back_cannot_be_settled_until_it_is_delivered_again(core: Core) -> None:
    (session,) = attached(core, 1, options="ordered=key backoff=10s")
    publish(core, "a", "a", "b")
    core.receive(session)
    core.type(session, "nack t @0")
    assert codes(core.type(session, "ack t @1", "ack t @2")) == ["stale", "+"]
    core.pass_time(11)
    assert received(core, session) == [0, 1]


def test_later_events_of_a_key_wait_during_the_pause_of_a_failed_one(core: Core) -> None:
    first, second = attached(core, 2, prefetch=1, options="ordered=key backoff=10s")
    publish(core, "a", "a", "b", "a")
    holder, other = (first, second) if 0 in received(core, first) else (second, first)
    core.receive(other)
    assert offsets(core.type(holder, "nack t @0")) == []
    explained = answer(core, core.connect(), "explain t @0 as=s")
    assert (explained["state"], explained["for_ms"] > 0) == ("delayed", True)
    explained = answer(core, core.connect(), "explain t @1 as=s")
    assert (explained["state"], explained["because"]) == ("waiting", "it waits for @0 of the same key, which waits too")
    publish(core, "c")
    assert received(core, holder) == [4], "other keys continue"
    core.type(holder, "ack t @4")
    core.pass_time(11)
    assert received(core, holder) == [0]


def test_explain_names_the_event_in_flight_that_an_event_waits_for(core: Core) -> None:
    attached(core, 2, prefetch=1)
    publish(core, "a", "a")
    explained = answer(core, core.connect(), "explain t @1 as=s")
    assert explained["because"] == "it waits for @0 of the same key, which is in flight"
    assert explained["behind"] == 0
    stats = answer(core, core.connect(), "stats t")["topics"]["t"]["subscriptions"]["s"]
    assert (stats["pending"], stats["parked"], stats["in_flight"]) == (1, 1, 1)


def test_a_dead_event_no_longer_holds_up_its_key(core: Core) -> None:
    (session,) = attached(core, 1, prefetch=1, options="ordered=key tries=1")
    publish(core, "a", "a")
    core.receive(session)
    assert offsets(core.type(session, "nack t @0")) == [1]
    assert offsets(core.type(session, "ack t @1", "redrive t as=s all")) == [0]


@pytest.mark.parametrize("end", ["disconnect", "quit", "unsub t as=s"])
def test_the_events_of_a_lost_consumer_go_to_another_one_in_order(core: Core, end: str) -> None:
    (first,) = attached(core, 1)
    publish(core, "a", "b", "a", "b")
    assert received(core, first) == [0, 1, 2, 3]
    (second,) = attached(core, 1)
    publish(core, "a")
    core.type(first, "ack t @1")
    if end != "disconnect":
        core.type(first, end)
    core.disconnect(first)
    core.pass_time(1)
    got = received(core, second)
    assert sorted(got) == [0, 2, 3, 4]
    assert [offset for offset in got if offset != 3] == [0, 2, 4]


def test_a_timeout_takes_back_the_later_events_of_its_key(core: Core) -> None:
    (first,) = attached(core, 1, options="ordered=key timeout=10s")
    publish(core, "a", "a")
    core.receive(first)
    core.pass_time(5)
    core.type(first, "extend t @1")
    core.pass_time(6)
    assert received(core, first) == [0, 1]
    core.pass_time(9)
    assert received(core, first) == [], "the old deadline of a delivery that was taken back does not count"
    core.pass_time(2)
    assert received(core, first) == [0, 1]


def test_order_and_keys_survive_a_restart(core: Core) -> None:
    first, _ = attached(core, 2, prefetch=2)
    publish(core, *"abcabcabc")
    core.type(first, "ack t @0 @1")
    before = {one.name: one.policy for one in core.broker.topics["t"].subscriptions.values()}
    core.restart()
    assert {one.name: one.policy for one in core.broker.topics["t"].subscriptions.values()} == before
    third = attach(core, 100, options="")
    unsettled = received(core, third)
    assert unsettled == sorted(unsettled)
    fourth = attach(core, 100, options="")
    publish(core, "a", "b", "c")
    assert received(core, fourth) == []
    assert received(core, third) == [9, 10, 11]


def test_lines_that_are_no_longer_in_memory_are_read_for_their_keys(core: Core) -> None:
    publish(core, *"abababab", headers={"padding": "x" * 300_000})
    core.hold_fetches = True
    first, second = attach(core), attach(core)
    core.receive(first)
    core.receive(second)
    publish(core, "a", "b")
    assert (received(core, first), received(core, second)) == ([], [])
    explained = answer(core, core.connect(), "explain t @1 as=s")
    assert (explained["state"], explained["behind"]) == ("waiting", 1)
    core.hold_fetches = False
    got: list[int] = []
    for _ in range(20):
        core.carry_out()
        for session in (first, second):
            some = received(core, session)
            got += some
            core.type(session, *(f"ack t @{offset}" for offset in some))
    assert sorted(got) == list(range(10))


def test_damaged_and_purged_events_of_a_key_do_not_block_it(core: Core) -> None:
    publish(core, *"aaaa", headers={"padding": "x" * 400_000})
    core.hold_fetches = True
    session = attach(core)
    core.receive(session)
    assert codes(core.type(core.connect(), "purge t before=2")) == ["+"]
    core.hold_fetches = False
    core.carry_out()
    assert received(core, session) == [2, 3]
    stats = answer(core, core.connect(), "stats t")["topics"]["t"]["subscriptions"]["s"]
    assert (stats["pending"], stats["overtaken"]) == (0, 2)


def test_a_purge_of_parked_events_frees_their_keys(core: Core) -> None:
    (session,) = attached(core, 1, prefetch=1, options="ordered=key backoff=100s")
    publish(core, "a", "a", "a")
    core.receive(session)
    core.type(session, "nack t @0")
    assert codes(core.type(core.connect(), "purge t before=2")) == ["+"]
    core.pass_time(1)
    publish(core, "b")
    assert received(core, session) == [2]


def test_a_subscription_becomes_ordered_once_its_events_in_flight_are_settled(core: Core) -> None:
    first, second = attached(core, 2, prefetch=2, options="")
    publish(core, "a", "a", "a", "a", "a", "a")
    mine, other = received(core, first), received(core, second)
    assert sorted(mine + other) == [0, 1, 2, 3]
    third = attach(core, 10)
    core.receive(third)
    publish(core, "a")
    explained = answer(core, core.connect(), "explain t @4 as=s")
    assert explained["because"].startswith("events that were in flight when the subscription became ordered")
    core.type(first, f"ack t @{mine[0]} @{mine[1]}")
    assert (received(core, first), received(core, third)) == ([], [])
    got = offsets(core.type(second, f"nack t @{other[0]}", f"ack t @{other[1]}"))
    got += received(core, first) + received(core, third)
    assert got[0] == other[0]
    assert got == sorted(got)


def test_an_ordered_subscription_becomes_unordered_at_once(core: Core) -> None:
    first, second = attached(core, 2, prefetch=1, options="ordered=key backoff=100s")
    publish(core, "a", "a", "a")
    core.type(first, "nack t @0")
    core.type(second, "nack t @0")
    got = offsets(core.type(core.connect(), "sub t as=s prefetch=1 ordered=none"))
    assert sorted(got + received(core, first) + received(core, second)) == [0, 1, 2]


def test_a_seek_of_an_ordered_subscription_keeps_the_order(core: Core) -> None:
    first, second = attached(core, 2)
    publish(core, *"abab")
    for session in (first, second):
        core.receive(session)
    assert codes(core.type(core.connect(), "seek t as=s to=earliest")) == ["+"]
    assert sorted([received(core, first), received(core, second)]) == [[0, 2], [1, 3]]


def test_a_pause_keeps_the_order(core: Core) -> None:
    (session,) = attached(core, 1, prefetch=2)
    publish(core, *"aaaa")
    core.receive(session)
    assert codes(core.type(core.connect(), "pause t as=s")) == ["+"]
    assert offsets(core.type(session, "nack t @0")) == []
    assert codes(core.type(core.connect(), "resume t as=s")) == ["+"]
    assert received(core, session) == [0, 1]


def test_a_key_has_a_limit_of_events_in_flight(core: Core) -> None:
    first, second = attached(core, 2, prefetch=2 * FLYING_MAX)
    session = core.connect()
    core.type(session, *(f'pub t {{"id":"{n}","key":"a","msg":1}}' for n in range(FLYING_MAX + 5)))
    got = {session: received(core, session) for session in (first, second)}
    holder = max(got, key=lambda one: len(got[one]))
    assert got[holder] == list(range(FLYING_MAX))
    assert offsets(core.type(holder, "ack t @0")) == [FLYING_MAX]
    lines = core.type(holder, "nack t @1")
    assert offsets(lines) == list(range(1, FLYING_MAX + 1))


@pytest.mark.parametrize("line", ["ordered=", "ordered=topic", "ordered", "ordered=KEY"])
def test_a_wrong_order_is_refused(core: Core, line: str) -> None:
    assert codes(core.type(core.connect(), f"sub t as=s {line}")) == ["bad_arguments"]


def test_parked_events_have_a_limit(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.core.topic.ordered_backlog.PARKED_MAX", 5)
    first, second = attached(core, 2, prefetch=1)
    publish(core, *"aaaaaaaaaab")
    assert sorted(received(core, first) + received(core, second)) == [0]
    stats = answer(core, core.connect(), "stats t")["topics"]["t"]["subscriptions"]["s"]
    assert (stats["parked"], stats["pending"]) == (5, 10)
    got: list[int] = []
    for offset in range(10):
        for session in (first, second):
            got += offsets(core.type(session, f"ack t @{offset}"))
    assert sorted(got) == list(range(1, 11))


def test_a_pattern_can_be_ordered_within_its_shared_prefetch() -> None:
    core = Core("o.a", "o.b")
    first, second = core.connect(), core.connect()
    for session in (first, second):
        assert codes(core.type(session, "sub o.* as=s prefetch=2 ordered=key")) == ["+"]
    publisher = core.connect()
    for number in range(12):
        core.type(publisher, f'pub o.{"ab"[number % 2]} {{"id":"e{number}","msg":{number},"key":"{number % 3}"}}')
    seen: dict[tuple[str, str], list[int]] = {}
    for _ in range(30):
        for session in (first, second):
            events = [json.loads(line) for line in core.receive(session) if line.startswith("{")]
            assert len(events) <= 2
            for event in events:
                seen.setdefault((event["topic"], event["key"]), []).append(event["offset"])
            for event in events:
                core.broker.execute(session, Ack(event["topic"], [event["offset"]], []), core.now_ms)
                core.carry_out()
    assert sum(map(len, seen.values())) == 12
    assert all(some == sorted(some) for some in seen.values())


def test_a_delayed_event_holds_up_its_key_only_from_when_it_is_due(core: Core) -> None:
    first, second = attached(core, 2, prefetch=1)
    publisher = core.connect()
    core.type(publisher, 'pub t delay=10s {"id":"late","msg":1,"key":"a"}')
    publish(core, "a", "a")
    assert sorted(received(core, first) + received(core, second)) == [1]
    core.pass_time(11)
    assert received(core, first) + received(core, second) == [], "one event of the key is in flight"
    holder, other = (first, second) if 1 in where(core, first) else (second, first)
    assert offsets(core.type(holder, "ack t @1")) + received(core, other) == [0]


def test_an_expired_event_does_not_hold_up_its_key(core: Core) -> None:
    publisher = core.connect()
    core.type(publisher, 'pub t expires=1s {"id":"old","msg":1,"key":"a"}')
    publish(core, "a", "a")
    core.pass_time(2)
    session = attach(core, 1)
    core.pass_time(1)
    in_flight = where(core, session)
    assert in_flight == [1]
    assert offsets(core.type(session, "ack t @1")) == [2]


def where(core: Core, session: Session) -> list[int]:
    """Return the offsets in flight with a session."""
    return [offset for consumer in session.consumers_of("t") for offset in consumer.in_flight]


def test_a_long_row_of_one_key_is_parked_over_several_turns() -> None:
    core = Core("t")
    publish(core, *["a"] * (2 * PARKED_A_TURN), "b")
    attached(core, 1, prefetch=1)
    second = attach(core, prefetch=1)
    backlog = core.broker.topics["t"].subscriptions["s"].backlog
    assert isinstance(backlog, OrderedBacklog)
    assert backlog.parked < 2 * PARKED_A_TURN - 1
    core.pass_time(1)
    assert received(core, second) == [2 * PARKED_A_TURN]


def test_an_ordered_pattern_continues_once_its_client_has_read() -> None:
    core = Core("a.x")
    publisher = core.connect()
    for n in range(20):
        core.type(publisher, f'pub a.x {{"id":"{n}","msg":"{"x" * (HIGH_WATER_BYTES // 8)}","key":"{n}"}}')
    session = core.connect()
    assert offsets(core.type(session, "sub a.* as=s prefetch=100 from=earliest ordered=key")) == list(range(20))


def test_events_that_expire_while_they_are_parked_are_settled_over_several_turns() -> None:
    core = Core("t")
    publish(core, "a")
    publish(core, *["a"] * (2 * EXPIRED_A_TURN), expires="10s")
    first, _ = attached(core, 2, prefetch=1)
    core.pass_time(11)
    core.type(first, "ack t @0")
    subscription = core.broker.topics["t"].subscriptions["s"]
    assert subscription.expired.count == EXPIRED_A_TURN
    core.pass_time(1)
    assert subscription.expired.count == 2 * EXPIRED_A_TURN
    assert subscription.waiting == 0
