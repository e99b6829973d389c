"""The owners of subscriptions: two users with three connections, each trying to use the other's subscriptions."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core import Access, Session
from broker.core.topic.kept import subscription_record
from broker.journal.records import SubscriptionRecord
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import ALICE, BOB, BOSS, SHARING, answer, codes, connect
from tweetwire.protocol.policy import Policy


@pytest.fixture
def core() -> Core:
    return Core("t", "logger_stats")


# Subscriptions have owners


def test_another_user_can_neither_share_nor_end_a_subscription(core: Core) -> None:
    mine = connect(core, ALICE, "sub t as=s")
    bob = connect(core, BOB)
    assert codes(core.type(bob, "sub t as=s", "sub t as=s tries=1", "unsub t as=s", "unsub t as=s end")) == [
        *("forbidden", "forbidden", "not_subscribed", "forbidden")
    ]
    assert core.broker.topics["t"].subscriptions["s"].policy.tries == 5
    assert core.receive(mine) == []
    core.restart()
    assert codes(core.type(connect(core, BOB), "sub t as=s")) == ["forbidden"]
    core.restart(is_folded=True)
    assert codes(core.type(connect(core, BOB), "sub t as=s")) == ["forbidden"]
    assert codes(core.type(connect(core, ALICE), "sub t as=s", "unsub t as=s end")) == ["+", "+"]


def test_a_share_pattern_lets_another_user_attach_and_look_but_not_end(core: Core) -> None:
    connect(core, ALICE, "sub t as=s")
    connect(core, ALICE, "sub t as=other")
    carol = connect(core, SHARING)
    assert codes(core.type(carol, "sub t as=s", "unsub t as=s end", "sub t as=other")) == [
        "+",
        "forbidden",
        "forbidden",
    ]
    assert {one["client"] for one in answer(core, carol, "backlog t as=s")["consumers"]} == {"alice", "carol"}


def test_an_administrator_attaches_to_and_ends_any_subscription(core: Core) -> None:
    mine = connect(core, ALICE, "sub t as=s")
    assert codes(core.type(connect(core, BOSS), "sub t as=s", "unsub t as=s end")) == ["+", "+"]
    assert core.receive(mine) == ["!ended t as=s boss ended the subscription"]


def test_an_old_subscription_belongs_to_the_first_user_and_to_those_who_had_it(core: Core) -> None:
    before = core.connect()
    core.type(before, "hello bob", "sub t as=s", "sub t as=single")
    core.disconnect(before)
    core.restart(is_folded=True)
    boss = connect(core, BOSS, "sub t as=s")
    assert list(core.broker.topics["t"].subscriptions["s"].owners) == [], "an administrator only looks after it"
    core.type(boss, "unsub t as=s")
    alice = connect(core, ALICE)
    assert codes(core.type(alice, "sub t as=s")) == ["+"]
    core.restart()
    assert core.broker.topics["t"].subscriptions["s"].owners == ("alice", "bob")
    assert codes(core.type(connect(core, BOB), "sub t as=s", "sub t as=single")) == ["+", "+"]
    assert codes(core.type(alice, "sub t as=single")) == ["forbidden"]


def test_claiming_a_subscription_keeps_its_settled_and_failed_events(core: Core) -> None:
    before = core.connect()
    core.type(before, "hello old", "sub t as=s from=earliest prefetch=9")
    core.publish("e0", "e1", "e2", "e3", "e4")
    core.receive(before)
    core.type(before, "ack t @0 @3", 'nack t @1 "words"')
    core.disconnect(before)
    alice = connect(core, ALICE)
    core.type(alice, "sub t as=s prefetch=9", "ack t @4")
    core.restart()
    alice = connect(core, ALICE)
    lines = core.type(alice, "sub t as=s prefetch=9")[1:]
    assert [json.loads(line)["offset"] for line in lines] == [1, 2]
    assert "words" in core.type(alice, "explain t @1 as=s")[0]


def test_records_without_owners_are_read(core: Core) -> None:
    record = msgspec.json.decode(
        b'{"type":"subscription","topic":"t","name":"s","start":0,"floor":0,"floors":{},"policy":{}}',
        type=SubscriptionRecord,
    )
    core.kept = [record]
    core.restart()
    assert codes(core.type(connect(core, BOB), "sub t as=s")) == ["+"]


def test_without_users_every_connection_shares_and_ends(core: Core) -> None:
    one, other = core.connect(), core.connect()
    assert codes(core.type(one, "sub t as=s")) == codes(core.type(other, "sub t as=s", "unsub t as=s end"))[:1] == ["+"]


# Anonymous subscriptions


@pytest.mark.parametrize("access", [None, BOB, BOSS])
def test_an_anonymous_subscription_cannot_be_named_by_another_connection(core: Core, access: Access | None) -> None:
    mine = connect(core, ALICE, "sub t")
    core.publish("e0")
    core.receive(mine)
    name = next(iter(core.broker.topics["t"].subscriptions))
    other = core.connect() if access is None else connect(core, access)
    lines = (f"unsub t as={name}", f"unsub t as={name} end", f"explain t @0 as={name}", f"unsettled t as={name}")
    assert codes(core.type(other, *lines, f"backlog t as={name}")) == ["not_subscribed"] * 5
    there = core.type(other, f"unsub t as={name}", f"unsub t as={name} end")
    not_there = core.type(other, "unsub t as=conn-999", "unsub t as=conn-999 end")
    assert [line.replace(name, "conn-999") for line in there] == not_there, "as if it were not there"
    if access is not BOB:
        assert codes(core.type(other, f"redrive t as={name} all")) == ["not_subscribed"]
    assert codes(core.type(other, f"sub t as={name}", "sub t as=conn-999")) == ["bad_name", "bad_name"]
    assert answer(core, other, f"dead as={name}") == []
    assert core.type(mine, "ack t @0") == ["+OK ack t 1"]
    assert codes(core.type(mine, f"backlog t as={name}", f"sub t as={name} prefetch=2", f"unsub t as={name}")) == [
        *("+", "+", "+")
    ]


def test_a_durable_subscription_named_like_an_anonymous_one_stays_apart(core: Core) -> None:
    old = SubscriptionRecord("t", "conn-2", 0, 0, {}, Policy())
    core.kept = [old]
    core.restart()
    one, other = core.connect(), core.connect()
    assert codes(core.type(one, "sub t as=conn-2")) == ["+"]
    assert codes(core.type(other, "sub t")) == ["bad_name"]


# Reports


def dying(core: Core) -> tuple[Session, Session]:
    """Make a subscription of alice with a dead event, a failed event in flight, and an error. Bob may read the topic."""
    mine = connect(core, ALICE, "sub t as=s from=earliest tries=2 prefetch=2")
    core.publish("e0", "e1", "e2")
    core.receive(mine)
    core.type(mine, 'nack t @0 "secret words"', 'nack t @0 "secret words"', 'nack t @1 "secret words"')
    return mine, connect(core, BOB)


def test_reports_conceal_others_errors_and_peers(core: Core) -> None:
    mine, bob = dying(core)
    lines = ("explain t @0 as=s", "explain t @1 as=s", "backlog t as=s", "dead", "dead topic=t as=s")
    told = " ".join(core.type(bob, *lines, "stats", "topics", "chain t @1"))
    assert "secret" not in told
    assert "test:1" not in told
    assert "alice" not in told
    assert answer(core, bob, "dead") == []
    assert answer(core, bob, "backlog t as=s") == {"by_priority": {}, "oldest": 1, "consumers": None, "owners": None}
    in_flight = answer(core, bob, "explain t @1 as=s")
    assert (in_flight["state"], in_flight["client"], in_flight["errors"], in_flight["failed_tries"]) == (
        *("in_flight", None, [], 1),
    )
    for session in (mine, connect(core, BOSS)):
        told = " ".join(core.type(session, *lines))
        assert told.count("secret words") >= 5
        assert "alice" in told
    assert codes(core.type(bob, "clients")) == ["forbidden"]


def test_dead_leaves_out_topics_that_the_user_may_only_publish_to(core: Core) -> None:
    dying(core)
    assert answer(core, connect(core, Access("ann", ("*",), (), share=("*/*",))), "dead") == []
    assert len(answer(core, connect(core, Access("ann", (), ("t",), share=("*/*",))), "dead")) == 1


# Changes of permissions


def test_resume_leaves_out_topics_that_the_user_may_no_longer_read(core: Core) -> None:
    core.broker.topic("u")
    session = connect(core, ALICE, "sub t as=s", "sub u as=s", "sub t as=taken")
    core.disconnect(session)
    core.type(connect(core, BOSS), "unsub t as=taken end")
    connect(core, BOB, "sub t as=taken")
    core.restart()
    core.publish("e0")
    session = core.connect()
    core.broker.grant(session, Access("alice", (), ("u", "t")), core.now_ms)
    assert core.type(session, "hello alice resume") == [
        "+OK hello alice",
        "+OK sub t as=s from=0 pending=1 prefetch=1",
        core.logs.by_topic["t"].pick([0])[0].decode().strip(),
        "+OK sub u as=s from=0 pending=0 prefetch=1",
        "!ended t as=taken alice may no longer use it",
    ]


def test_resume_attaches_to_nothing_after_the_right_to_read_was_taken(core: Core) -> None:
    core.disconnect(connect(core, ALICE, "sub t as=s"))
    core.publish("e0", "e1", "e2")
    session = core.connect()
    core.broker.grant(session, Access("alice", ("*",), ("u",)), core.now_ms)
    assert core.type(session, "hello alice resume") == ["+OK hello alice", "!ended t as=s alice may no longer use it"]
    assert core.receive(session) == []


def test_a_session_immediately_loses_the_subscriptions_that_its_new_access_forbids(core: Core) -> None:
    session = connect(core, ALICE, "sub t as=s", "sub t", "sub logger_stats as=s")
    core.broker.grant(session, Access("alice", (), ("logger_stats",)), core.now_ms)
    core.carry_out()
    anonymous = f"!ended t as=conn-{session.number} alice may no longer use it"
    assert core.receive(session) == ["!ended t as=s alice may no longer use it", anonymous]
    core.publish("e0", "e1", "e2")
    assert core.receive(session) == []
    assert list(core.broker.topics["t"].subscriptions) == ["s"]
    assert codes(core.type(session, "ack t @0")) == ["forbidden"]


def test_a_second_hello_as_another_user_keeps_nothing_of_the_first(core: Core) -> None:
    session = connect(core, ALICE, "sub t as=s")
    core.publish("e0", "e1", "e2")
    core.receive(session)
    core.broker.grant(session, BOB, core.now_ms)
    assert core.type(session, "hello bob", "ack t @0") == [
        "!ended t as=s bob may no longer use it",
        "+OK hello bob",
        "-ERR not_subscribed this connection has no subscription to t",
    ]
    assert core.broker.topics["t"].subscriptions["s"].attempts == {}


# Commands of a hostile user

WORDS = st.sampled_from(
    (
        *(
            "sub",
            "unsub",
            "ack",
            "nack",
            "extend",
            "begin",
            "read",
            "explain",
            "dead",
            "redrive",
            "unsettled",
            "backlog",
        ),
        *("hello", "clients", "last", "checkpoint", "retain", "describe", "schema", "chain", "pubrec", "pubcomp"),
        *(
            "t",
            "@0",
            "@1",
            "e1",
            "as=s",
            "as=conn-1",
            "as=conn-2",
            "topic=t",
            "end",
            "all",
            "resume",
            "alice",
            "mallory",
        ),
        *("from=earliest", "tries=1", "prefetch=9", "create", "0", "none", "limit=9", "quit", "dead_letters"),
    )
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=5), max_size=12))
def test_no_line_of_a_user_changes_or_shows_the_subscriptions_of_another_user(lines: list[list[str]]) -> None:
    core = Core("t")
    mine = connect(core, ALICE, "sub t as=s from=earliest prefetch=2", "sub t prefetch=2")
    core.publish("e0", "e1", "e2")
    core.receive(mine)
    core.type(mine, 'nack t @0 "secret words"')
    named, anonymous = core.broker.topics["t"].subscriptions.values()
    before = subscription_record(named, 3), subscription_record(anonymous, 3)
    mallory = connect(core, Access("mallory", ("t",), ("t",)))
    told = core.type(mallory, *(" ".join(words) for words in lines))
    assert (subscription_record(named, 3), subscription_record(anonymous, 3)) == before
    assert not [line for line in told if "secret" in line or "test:1" in line]
    assert core.receive(mine) == []
