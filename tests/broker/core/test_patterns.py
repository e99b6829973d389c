"""Pattern subscriptions: topics that match, permissions, names, the shared prefetch, and restarts."""

import json

import pytest

from broker.core import Access, Session, patterns
from broker.core.verbs.topics import SUBSCRIPTIONS_A_SLICE
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import answer, connect

TEAM_A = Access("anna", ("a.*",), ("a.*", "shared.*"))
TEAM_B = Access("ben", ("b.*",), ("b.*", "shared.*"))
BOSS = Access("boss", ("*",), ("*",), is_admin=True)


@pytest.fixture
def core() -> Core:
    return Core("orders.eu", "orders.us", "orders.eu.fr", "other")


def places(lines: list[str]) -> list[tuple[str, int]]:
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [(event["topic"], event["offset"]) for event in events]


def publish(core: Core, topic: str, count: int) -> None:
    core.publish(*(f"{topic}-{n}" for n in range(count)), topic=topic)


def test_a_pattern_has_the_events_of_all_topics_that_match(core: Core) -> None:
    session = core.connect()
    assert core.type(session, "sub orders.* as=s prefetch=10") == [
        "+OK sub orders.* as=s topics=2 pending=0 prefetch=10"
    ]
    for topic in ("orders.eu", "orders.us", "orders.eu.fr", "other"):
        publish(core, topic, 1)
    assert places(core.receive(session)) == [("orders.eu", 0), ("orders.us", 0)]
    assert core.type(session, "ack orders.us @0", "ack orders.eu orders.eu-0") == [
        "+OK ack orders.us 1",
        "+OK ack orders.eu 1",
    ]


def test_a_topic_that_is_created_later_is_read_from_its_first_event(core: Core) -> None:
    """With a consumer, without one, and by every command that creates a topic."""
    session = core.connect()
    core.type(session, "sub orders.* as=s prefetch=10")
    publish(core, "orders.later", 2)
    assert places(core.receive(session)) == [("orders.later", 0), ("orders.later", 1)]
    core.type(session, "unsub orders.*")
    publish(core, "orders.alone", 2)
    core.type(session, "create orders.made", "sub orders.subscribed as=x create")
    assert core.broker.topics["orders.subscribed"].subscriptions["s"].start == 0
    reply, *events = core.type(session, "sub orders.* as=s prefetch=10")
    assert reply == "+OK sub orders.* as=s topics=6 pending=4 prefetch=10"
    assert set(places(events)) == {(f"orders.{name}", n) for name in ("later", "alone") for n in (0, 1)}


def test_the_prefetch_is_shared_and_topics_have_their_turns(core: Core) -> None:
    publish(core, "orders.eu", 50)
    session = core.connect()
    _, *events = core.type(session, "sub orders.* as=s prefetch=4 from=earliest")
    assert places(events) == [("orders.eu", n) for n in range(4)]
    publish(core, "orders.us", 2)
    assert core.receive(session) == []
    # The busy topic was served before, and the other one waits since then. So they have the room in turns.
    received = places(core.type(session, "ack orders.eu @0 @1 @2 @3"))
    assert sorted(received) == [("orders.eu", 4), ("orders.eu", 5), ("orders.us", 0), ("orders.us", 1)]
    backlog = answer(core, session, "backlog orders.eu as=s")
    assert backlog["consumers"][0]["in_flight"] == 2


def test_a_topic_with_a_large_backlog_does_not_delay_the_others(core: Core) -> None:
    """With a prefetch of one, three topics are served in turns, whatever the size of their backlogs."""
    publish(core, "orders.eu", 30)
    publish(core, "orders.us", 3)
    publish(core, "orders.fr", 3)
    session = core.connect()
    lines = core.type(session, "sub orders.* as=s from=earliest")
    order: list[str] = []
    while found := places(lines):
        ((topic, offset),) = found
        order.append(topic)
        lines = core.type(session, f"ack {topic} @{offset}")
    assert len(order) == 36
    assert all(len(set(order[at : at + 3])) == 3 for at in range(0, 9, 3)), order[:9]


def test_a_dropped_topic_leaves_and_its_room_is_used(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub orders.* as=s")
    publish(core, "orders.eu", 1)
    publish(core, "orders.us", 1)
    assert places(core.receive(session)) == [("orders.eu", 0)]
    other = core.connect()
    core.type(other, "drop orders.eu")
    core.pass_time(0.2)
    notice, event = core.receive(session)
    assert notice == f"!ended orders.eu as=s {other.name} dropped the topic"
    assert places([event]) == [("orders.us", 0)]
    assert answer(core, other, "stats")["patterns"][0]["topics"] == 1
    publish(core, "orders.eu", 1)
    assert places(core.type(session, "ack orders.us @0")) == [("orders.eu", 0)]


def test_two_connections_share_the_events_of_a_pattern(core: Core) -> None:
    first, second = core.connect(), core.connect()
    for session in (first, second):
        core.type(session, "sub orders.* as=s prefetch=2")
    publish(core, "orders.eu", 3)
    publish(core, "orders.us", 3)
    received = [places(core.receive(session)) for session in (first, second)]
    assert [len(one) for one in received] == [2, 2]
    core.disconnect(first)
    lines = core.type(second, *(f"ack {topic} @{offset}" for topic, offset in received[1]))
    assert len(places(lines)) == 2
    waiting = sum(core.broker.topics[name].subscriptions["s"].waiting for name in ("orders.eu", "orders.us"))
    assert waiting == 2


def test_unsub_with_end_ends_the_subscription_on_every_topic(core: Core) -> None:
    owner, other, single = core.connect(), core.connect(), core.connect()
    core.type(owner, "sub orders.* as=s")
    core.type(other, "sub orders.* as=s")
    core.type(single, "sub orders.eu as=s")
    core.type(owner, "sub orders.us as=own")
    assert core.type(owner, "unsub orders.* as=s end") == ["+OK unsub orders.*"]
    assert core.receive(other) == [f"!ended orders.* as=s {owner.name} ended the subscription"]
    assert core.receive(single) == [f"!ended orders.eu as=s {owner.name} ended the subscription"]
    for name in ("orders.eu", "orders.us"):
        assert "s" not in core.broker.topics[name].subscriptions
    assert "own" in core.broker.topics["orders.us"].subscriptions
    assert core.type(owner, "unsub orders.* as=s end")[0].startswith("-ERR not_subscribed")
    core.restart()
    assert all("s" not in topic.subscriptions for topic in core.broker.topics.values())


def test_the_subscription_on_one_topic_of_a_pattern_cannot_be_ended_separately(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub orders.* as=s")
    assert core.type(session, "unsub orders.eu as=s end") == [
        "-ERR bad_arguments s is a subscription to orders.*; to end it: unsub orders.* as=s end"
    ]
    assert core.type(session, "unsub orders.eu as=s") == ["+OK unsub orders.eu"]
    publish(core, "orders.eu", 1)
    assert core.receive(session) == []
    assert places(core.type(session, "sub orders.* as=s")) == [("orders.eu", 0)]


def test_seek_pause_dead_letters_and_redrive_work_for_each_topic(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub orders.* as=s prefetch=5 tries=1")
    publish(core, "orders.eu", 2)
    core.receive(session)
    assert core.type(session, 'nack orders.eu @0 "broken"', "ack orders.eu @1") == [
        "+OK nack orders.eu 1",
        "+OK ack orders.eu 1",
    ]
    assert answer(core, session, "dead as=s")[0]["topic"] == "orders.eu"
    assert places(core.type(session, "redrive orders.eu as=s all")) == [("orders.eu", 0)]
    core.type(session, "pause orders.us as=s")
    publish(core, "orders.us", 1)
    assert core.receive(session) == []
    assert places(core.type(session, "resume orders.us as=s")) == [("orders.us", 0)]
    assert places(core.type(session, "seek orders.eu as=s to=earliest")) == [("orders.eu", 0), ("orders.eu", 1)]
    assert answer(core, session, "explain orders.eu @1 as=s")["state"] == "in_flight"


def test_an_anonymous_pattern_ends_with_its_connection(core: Core) -> None:
    session = core.connect()
    assert core.type(session, "sub orders.* prefetch=5") == [
        f"+OK sub orders.* as=conn-{session.number} topics=2 pending=0 prefetch=5"
    ]
    publish(core, "orders.new", 1)
    assert places(core.receive(session)) == [("orders.new", 0)]
    core.disconnect(session)
    assert all(not topic.subscriptions for topic in core.broker.topics.values())
    assert core.type(core.connect(), "sub orders.*", "quit")[1:] == ["+OK bye"]
    assert core.type(core.connect(), "sub orders.*", "unsub orders.*", "sub orders.*", "ping")[1::2] == [
        "+OK unsub orders.*",
        "+PONG",
    ]
    session = core.connect()
    core.type(session, "sub orders.*")
    core.disconnect(session)
    watcher = core.connect()
    assert [one["name"] for one in answer(core, watcher, "stats")["patterns"]] == [f"conn-{session.number - 1}"]


def test_a_pattern_outlives_a_restart_with_its_policy(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub orders.* as=s prefetch=5 tries=7 backoff=3s")
    publish(core, "orders.eu", 2)
    core.receive(session)
    core.type(session, "ack orders.eu @0")
    for is_folded in (False, True):
        core.restart(is_folded=is_folded)
        publish(core, f"orders.new{is_folded}", 1)
        assert core.broker.topics[f"orders.new{is_folded}"].subscriptions["s"].policy.tries == 7
    session = core.connect()
    _, *events = core.type(session, "sub orders.* as=s prefetch=9")
    assert sorted(places(events)) == [("orders.eu", 1), ("orders.newFalse", 0), ("orders.newTrue", 0)]
    (pattern,) = answer(core, session, "stats")["patterns"]
    assert pattern == {
        "pattern": "orders.*",
        "name": "s",
        "durable": True,
        "topics": 4,
        "consumers": 1,
        "in_flight": 3,
    }


def test_a_new_topic_whose_subscription_a_crash_lost_is_read_from_its_first_event(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub orders.* as=s")
    core.disconnect(session)
    kept = list(core.kept)
    publish(core, "orders.new", 2)
    # The log has the events, and the journal lost the record of the subscription.
    core.kept = kept
    core.restart()
    session = core.connect()
    _, *events = core.type(session, "sub orders.* as=s prefetch=9")
    assert places(events) == [("orders.new", 0), ("orders.new", 1)]


def test_a_named_client_resumes_its_patterns(core: Core) -> None:
    session = core.connect()
    core.type(session, "hello worker", "sub orders.* as=s prefetch=3")
    core.disconnect(session)
    core.restart()
    publish(core, "orders.us", 1)
    session = core.connect()
    hello, sub, event = core.type(session, "hello worker resume")
    assert (hello, sub) == ("+OK hello worker", "+OK sub orders.* as=s topics=2 pending=1 prefetch=3")
    assert places([event]) == [("orders.us", 0)]
    core.type(session, "unsub orders.* as=s end")
    core.disconnect(session)
    session = core.connect()
    assert core.type(session, "hello worker resume") == ["+OK hello worker"]


def test_internal_topics_and_replies_match_no_pattern() -> None:
    core = Core("rejected_lines", "handler_history", "logger_stats", "replies", "t")
    session = core.connect()
    assert core.type(session, "sub > as=s", "sub * as=r") == [
        "+OK sub > as=s topics=1 pending=0 prefetch=1",
        "+OK sub * as=r topics=1 pending=0 prefetch=1",
    ]
    assert core.type(session, "create audit", "create rejected_changes")[0].startswith("+OK create audit")
    assert answer(core, session, "stats")["patterns"][0]["topics"] == 1


# Permissions and names


def teams() -> tuple[Core, Session, Session, Session]:
    core = Core("a.x", "b.x", "shared.x")
    return core, connect(core, TEAM_A), connect(core, TEAM_B), connect(core, BOSS)


def test_topics_that_the_user_may_not_read_are_left_out() -> None:
    core, anna, ben, boss = teams()
    assert core.type(anna, "sub > as=s prefetch=9") == ["+OK sub > as=s topics=2 pending=0 prefetch=9"]
    for topic in ("a.new", "b.new", "b.x", "shared.new"):
        publish(core, topic, 1)
    assert places(core.receive(anna)) == [("a.new", 0), ("shared.new", 0)]
    assert "s" not in core.broker.topics["b.new"].subscriptions
    core.restart()
    assert "s" not in core.broker.topics["b.new"].subscriptions
    del ben, boss


def test_a_pattern_of_another_user_is_refused() -> None:
    core, anna, ben, boss = teams()
    core.type(anna, "sub shared.* as=s")
    assert core.type(ben, "sub shared.* as=s")[0].startswith("-ERR forbidden shared.*/s is not a subscription of ben")
    assert core.type(ben, "unsub shared.* as=s end")[0].startswith("-ERR forbidden")
    assert answer(core, ben, "stats")["patterns"] == []
    assert core.type(boss, "sub shared.* as=s")[0].startswith("+OK sub shared.*")
    assert core.type(boss, "unsub shared.* as=s end") == ["+OK unsub shared.*"]


def test_a_subscription_of_another_user_with_the_name_refuses_the_pattern() -> None:
    core, anna, ben, _ = teams()
    core.type(ben, "sub shared.x as=s")
    assert core.type(anna, "sub shared.* as=s")[0].startswith("-ERR forbidden shared.x/s is not a subscription of anna")
    assert core.type(anna, "sub > as=s")[0].startswith("-ERR forbidden")
    assert answer(core, anna, "stats")["patterns"] == []


def test_a_subscription_of_the_user_with_the_name_becomes_part_of_the_pattern(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub orders.eu as=s")
    publish(core, "orders.eu", 2)
    core.receive(session)
    core.type(session, "ack orders.eu @0", "unsub orders.eu as=s")
    _, *events = core.type(session, "sub orders.* as=s prefetch=9")
    assert places(events) == [("orders.eu", 1)]
    core.type(session, "unsub orders.* as=s end")
    assert "s" not in core.broker.topics["orders.eu"].subscriptions


def test_patterns_with_one_name_do_not_overlap(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub orders.* as=s")
    assert (
        core.type(session, "sub *.eu as=s", "sub > as=s")
        == [
            "-ERR bad_name orders.* as=s may match the same topics; choose another name",
        ]
        * 2
    )
    assert core.type(session, "sub payments.* as=s", "sub *.eu as=t")[0].startswith("+OK sub payments.*")


def test_users_that_share_no_topics_may_use_the_same_name_for_overlapping_patterns() -> None:
    core = Core("a.x", "b.x")
    anna, ben = connect(core, Access("anna", (), ("a.*",))), connect(core, Access("ben", (), ("b.*",)))
    assert core.type(anna, "sub > as=s")[0].startswith("+OK sub > as=s topics=1")
    assert core.type(ben, "sub b.* as=s")[0].startswith("+OK sub b.* as=s topics=1")


def test_a_connection_loses_the_topics_that_its_user_may_no_longer_read() -> None:
    core, anna, *_ = teams()
    core.type(anna, "sub > as=s prefetch=5")
    core.broker.grant(anna, Access("anna", (), ("a.*",)), core.now_ms)
    assert core.receive(anna) == ["!ended shared.x as=s anna may no longer use it"]
    publish(core, "shared.x", 1)
    publish(core, "a.x", 1)
    assert places(core.receive(anna)) == [("a.x", 0)]
    core.broker.grant(anna, Access("other", (), (">",)), core.now_ms)
    assert core.receive(anna)[-1] == "!ended > as=s other may no longer use it"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("sub a.* create", "bad_arguments"),
        ("sub a.* begins as=s", "bad_arguments"),
        ("sub a.* qos=2 as=s", "bad_arguments"),
        ("sub a.* from=7", "bad_arguments"),
        ("sub a.* as=conn-9", "bad_name"),
        ("sub a*", "bad_name"),
        ("sub " + "*." * 32_768 + "*", "bad_name"),
        ("sub .. as=s", "bad_name"),
        ("unsub a.* end", "bad_arguments"),
        ("unsub a.*", "not_subscribed"),
        ("unsub a.* as=s end", "not_subscribed"),
        ("ack a.* @0", "bad_name"),
        ("pub a.* {}", "bad_name"),
        ("seek a.* as=s to=earliest", "bad_name"),
    ],
)
def test_misuse_is_refused(core: Core, line: str, code: str) -> None:
    (reply,) = core.type(core.connect(), line)
    assert reply.startswith(f"-ERR {code} ")
    assert not core.bugs


def test_the_number_of_patterns_is_limited(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.core.patterns.PATTERNS_MAX", 2)
    session = core.connect()
    replies = core.type(session, "sub a.* as=s", "sub b.* as=s", "sub c.* as=s")
    assert replies[-1] == "-ERR too_many there are 2 pattern subscriptions"
    core.type(session, "unsub b.* as=s end")
    assert core.type(session, "sub c.* as=s")[0].startswith("+OK")


def test_the_number_of_topics_of_all_patterns_is_limited(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.core.patterns.PLACES_MAX", 6)
    first, second = core.connect(), core.connect()
    assert core.type(first, "sub orders.* as=s")[0].startswith("+OK sub orders.* as=s topics=2")
    assert core.type(second, "sub > as=t")[0].startswith("-ERR too_many > matches too many topics")
    assert core.type(second, "sub orders.* as=s")[0].startswith("+OK sub orders.* as=s topics=2")
    publish(core, "orders.left_out", 1)
    assert core.receive(first) == core.receive(second) == []
    assert answer(core, first, "stats")["pattern_topics_left_out"] == 1


def test_a_subscription_that_a_pattern_adds_while_a_topic_is_dropped_ends_too() -> None:
    core = Core("a.x")
    session, owner = core.connect(), core.connect()
    for n in range(SUBSCRIPTIONS_A_SLICE + 1):
        core.type(owner, f"sub a.x as=s{n}")
    core.hold_drops = True
    core.type(owner, "drop a.x")
    (drop,) = core.drops
    steps = core.broker.has_dropped(drop)
    next(steps)
    assert core.type(session, "sub a.* as=p") == ["+OK sub a.* as=p topics=1 pending=0 prefetch=1"]
    for _ in steps:
        pass
    assert core.receive(session)[0].startswith("!ended a.x as=p ")
    assert not session.shares["a.*", "p"].members


def test_each_pattern_of_a_new_topic_counts_towards_the_limit(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    session = core.connect()
    for n in range(3):
        core.type(session, f"sub new.* as=s{n}")
    monkeypatch.setattr(patterns, "PLACES_MAX", 4)
    core.broker.topic("new.a")
    assert sorted(core.broker.topics["new.a"].subscriptions) == ["s0", "s1"]
    assert core.broker.counts["pattern_topics_left_out"] == 1


def test_a_pattern_that_is_no_longer_ordered_immediately_delivers_events_that_waited_for_their_key() -> None:
    core = Core("a.x")
    publisher = core.connect()
    for n in range(3):
        core.type(publisher, f'pub a.x {{"id":"{n}","msg":1,"key":"k"}}')
    first, second = core.connect(), core.connect()
    assert len(core.type(first, "sub a.* as=s from=earliest ordered=key")) == 2
    core.type(second, "sub a.* as=s prefetch=2")
    core.type(first, "sub a.* as=s ordered=none")
    assert places(core.receive(second)) == [("a.x", 1), ("a.x", 2)]
