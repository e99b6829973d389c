"""Commands move and pause a durable subscription and discard its dead events. A restart finds the same state."""

import json

import pytest

from broker.core import Access, Session
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import ALICE, BOB, BOSS, SHARING, answer, codes, connect

FOLDED = pytest.mark.parametrize("is_folded", [False, True])


@pytest.fixture
def core() -> Core:
    return Core("t")


def ids(lines: list[str]) -> list[str]:
    return [json.loads(line)["id"] for line in lines if line.startswith("{")]


def subscribed(core: Core, options: str = "from=earliest prefetch=10") -> Session:
    session = core.connect()
    core.type(session, f"sub t as=s {options}")
    return session


def typed(core: Core, *lines: str) -> list[str]:
    return core.type(core.connect(), *lines)


def delivered(core: Core) -> list[str]:
    """Return the events that a new consumer gets. It then leaves without a failed try."""
    session = core.connect()
    found = ids(core.type(session, "sub t as=s prefetch=10"))
    core.type(session, "unsub t as=s")
    return found


# Seeking


@pytest.mark.parametrize(
    ("place", "first"),
    [
        ("earliest", 0),
        ("latest", 6),
        ("0", 0),
        ("@2", 2),
        ("4", 4),
        ("99", 6),
        ("1970-01-01T00:16:42Z", 3),
        ("2030-01-01", 6),
    ],
)
@FOLDED
def test_every_event_from_the_place_on_waits_and_every_one_before_it_is_settled(
    core: Core, place: str, first: int, *, is_folded: bool
) -> None:
    for at in range(6):
        core.now_ms = 1_000_000 + (at >= 3) * 2000
        core.publish(f"e{at}", priority=at % 2)
    session = subscribed(core)
    core.type(session, "ack t @1 @3")
    core.disconnect(session)
    assert typed(core, f"seek t as=s to={place}") == [f"+OK seek t as=s from={first} pending={6 - first}"]
    expected = [f"e{at}" for at in (1, 3, 5, 0, 2, 4) if at >= first]
    assert delivered(core) == expected
    core.restart(is_folded=is_folded)
    assert delivered(core) == expected
    core.publish("new")
    assert "new" in delivered(core)


def test_consumers_stay_attached_and_get_the_events_from_the_place_on(core: Core) -> None:
    core.publish("a", "b", "c")
    first, second = subscribed(core, "from=earliest prefetch=2"), subscribed(core, "prefetch=1")
    core.type(first, "ack t @0 @1")
    assert typed(core, "seek t as=s to=0") == ["+OK seek t as=s from=0 pending=3"]
    assert sorted(ids(core.receive(first) + core.receive(second))) == ["a", "b", "c"]
    figures = answer(core, core.connect(), "stats t")["topics"]["t"]["subscriptions"]["s"]
    assert (figures["consumers"], figures["in_flight"], figures["settled"]) == (2, 3, 2)


def test_an_ack_of_an_earlier_delivery_is_stale_or_settles_the_redelivered_event(core: Core) -> None:
    core.publish("a", "b", "c")
    session = subscribed(core)
    assert typed(core, "seek t as=s to=1") == ["+OK seek t as=s from=1 pending=2"]
    assert codes(core.type(session, "ack t @0")) == ["{", "{", "stale"]
    assert core.type(session, "ack t @1 b @2") == ["+OK ack t 2"]


@FOLDED
def test_failed_tries_and_dead_events_are_forgotten_and_their_letters_stay(core: Core, *, is_folded: bool) -> None:
    core.publish("a", "b", "c")
    session = subscribed(core, "from=earliest prefetch=10 tries=2")
    core.type(session, *("nack t @0",) * 2, "nack t @1")
    typed(core, "seek t as=s to=0")
    lines = [json.loads(line) for line in core.receive(session)]
    assert [(line["id"], "try" in line) for line in lines] == [("a", False), ("b", False), ("c", False)]
    core.type(session, "nack t @0", "nack t @1", "nack t @1")
    core.restart(is_folded=is_folded)
    assert [dead["offset"] for dead in answer(core, core.connect(), "dead")] == [1]
    assert len(ids(typed(core, "read dead_letters 0"))) == 2
    typed(core, "seek t as=s to=latest")
    core.restart(is_folded=is_folded)
    assert answer(core, core.connect(), "dead") == delivered(core) == []


def test_dead_letters_that_are_not_written_and_a_running_redrive_do_not_touch_the_new_state(core: Core) -> None:
    core.publish("a", "b", "c")
    session = subscribed(core, "from=earliest prefetch=10 tries=1")
    core.type(session, "nack t @0", "nack t @1")
    typed(core, "redrive t as=s all rate=1/s")
    core.fail_with = "No space left on device"
    core.type(session, "nack t @2")
    core.fail_with = None
    typed(core, "seek t as=s to=latest")
    core.pass_time(10)
    assert core.receive(session) == []
    assert answer(core, core.connect(), "dead") == []
    core.restart()
    assert answer(core, core.connect(), "dead") == delivered(core) == []
    assert core.bugs == []


def test_timeouts_of_earlier_deliveries_do_not_count(core: Core) -> None:
    core.publish("a")
    session = subscribed(core, "from=earliest timeout=10s tries=1")
    core.pass_time(8)
    typed(core, "seek t as=s to=0")
    assert ids(core.receive(session)) == ["a"]
    core.pass_time(5)
    assert answer(core, core.connect(), "dead") == []
    core.pass_time(6)
    assert len(answer(core, core.connect(), "dead")) == 1


def test_a_place_that_the_lanes_have_forgotten_is_read_from_the_index(core: Core) -> None:
    core.publish(*(f"e{at}" for at in range(5000)))
    session = subscribed(core, "from=earliest prefetch=10000")
    core.type(session, "ack t " + " ".join(f"@{at}" for at in range(5000)))
    core.pass_time(2)
    topic = core.broker.topics["t"]
    assert not topic.lanes.reaches(10)
    assert typed(core, "seek t as=s to=10") == ["+OK seek t as=s from=10 pending=4990"]
    assert ids(core.receive(session))[:2] == ["e10", "e11"]


def test_a_client_that_promises_to_begin_its_events_still_promises(core: Core) -> None:
    core.publish("a", "b")
    session = subscribed(core, "from=earliest prefetch=10 begins tries=1")
    core.type(session, "begin t @0")
    typed(core, "seek t as=s to=0")
    core.receive(session)
    assert core.type(session, "begin t @1") == ["+OK begin t 1"]
    core.disconnect(session)
    assert [dead["offset"] for dead in answer(core, core.connect(), "dead")] == [1]


@FOLDED
def test_events_that_a_client_has_taken_are_finished_and_can_be_taken_again(core: Core, *, is_folded: bool) -> None:
    core.publish("a", "b")
    session = core.connect()
    core.type(session, "hello ann", "sub t as=s from=earliest prefetch=10 qos=2", "pubrec t @0", "pubrec t @1")
    typed(core, "seek t as=s to=1")
    assert answer(core, core.connect(), "stats")["handshakes"]["taken"] == 0
    assert ids(core.receive(session)) == ["b"]
    assert codes(core.type(session, "pubcomp t @0")) == ["stale"]
    core.restart(is_folded=is_folded)
    session = core.connect()
    assert ids(core.type(session, "hello ann", "sub t as=s prefetch=10 qos=2")) == ["b"]
    assert core.type(session, "pubrec t @1", "pubcomp t @1") == ["+REL t @1", "+OK comp t @1"]
    core.restart(is_folded=is_folded)
    assert delivered(core) == []


def test_a_connection_that_was_lost_takes_nothing_from_the_new_state(core: Core) -> None:
    core.publish(*(f"e{at}" for at in range(6000)))
    session = subscribed(core, "from=earliest prefetch=6000 tries=1")
    core.broker.disconnect(session, core.now_ms)
    typed(core, "seek t as=s to=5990")
    core.pass_time(5)
    assert answer(core, core.connect(), "stats t")["topics"]["t"]["subscriptions"]["s"]["dead"] == 0
    assert delivered(core) == [f"e{at}" for at in range(5990, 6000)]


# Pausing


@FOLDED
def test_a_paused_subscription_gets_no_events_until_it_is_resumed(core: Core, *, is_folded: bool) -> None:
    core.publish("a", "b")
    session = subscribed(core, "from=earliest prefetch=1")
    assert typed(core, "pause t as=s", "pause t as=s") == ["+OK pause t as=s"] * 2
    assert core.type(session, "ack t @0") == ["+OK ack t 1"]
    assert answer(core, core.connect(), "stats t")["topics"]["t"]["subscriptions"]["s"]["paused"] is True
    assert answer(core, core.connect(), "backlog t as=s")["paused"] is True
    assert "resume t as=s" in answer(core, core.connect(), "explain t @1 as=s")["because"]
    core.restart(is_folded=is_folded)
    core.publish("c")
    session = core.connect()
    assert ids(core.type(session, "sub t as=s prefetch=10")) == []
    assert typed(core, "resume t as=s") == ["+OK resume t as=s"]
    assert ids(core.receive(session)) == ["b", "c"]
    assert typed(core, "resume t as=s") == ["+OK resume t as=s"]
    core.restart(is_folded=is_folded)
    assert delivered(core) == ["b", "c"]


def test_timeouts_continue_during_a_pause_and_the_event_waits(core: Core) -> None:
    core.publish("a")
    session = subscribed(core, "from=earliest timeout=5s")
    typed(core, "pause t as=s")
    core.pass_time(6)
    assert core.receive(session) == []
    assert codes(core.type(session, "ack t @0")) == ["stale"]
    typed(core, "resume t as=s")
    assert [json.loads(line)["try"] for line in core.receive(session)] == [2]


def test_lines_that_are_being_read_when_a_pause_begins_wait(core: Core) -> None:
    core.publish("a", "b")
    core.broker.topics["t"].recent.drop_oldest(1 << 20)
    session = core.connect()
    core.hold_fetches = True
    core.type(session, "sub t as=s from=earliest prefetch=10")
    typed(core, "pause t as=s")
    core.hold_fetches = False
    core.carry_out()
    assert core.receive(session) == []
    assert answer(core, core.connect(), "stats t")["topics"]["t"]["subscriptions"]["s"]["pending"] == 2
    typed(core, "resume t as=s")
    assert ids(core.receive(session)) == ["a", "b"]


def test_a_seek_keeps_a_pause(core: Core) -> None:
    core.publish("a", "b")
    session = subscribed(core, "from=latest")
    assert typed(core, "pause t as=s", "seek t as=s to=0")[1] == "+OK seek t as=s from=0 pending=2"
    assert core.receive(session) == []
    typed(core, "resume t as=s")
    assert ids(core.receive(session)) == ["a"]


# Discarding


def let_die(core: Core, *offsets: int) -> Session:
    session = subscribed(core, "from=earliest tries=1 prefetch=20")
    core.type(session, *(f"nack t @{offset}" for offset in offsets))
    return session


def test_discarded_events_are_settled_and_not_dead(core: Core) -> None:
    core.publish("a", "b", "c", "d")
    let_die(core, 0, 1, 2)
    assert typed(core, "discard t as=s @0 b", "discard t as=s b") == [
        "+OK discard t 2",
        "-ERR no_event b is not a dead event of s",
    ]
    assert codes(typed(core, "discard t as=s @2 @3", "redrive t as=s @0")) == ["no_event", "no_event"]
    assert [dead["offset"] for dead in answer(core, core.connect(), "dead")] == [2]
    assert answer(core, core.connect(), "explain t @0 as=s")["state"] == "settled"
    assert typed(core, "discard t as=s all", "discard t as=s all") == ["+OK discard t 1", "+OK discard t 0"]


@pytest.mark.parametrize("snapshot", ["none", "before the deaths", "between", "after"])
def test_discarded_events_stay_settled_after_a_restart(core: Core, snapshot: str) -> None:
    def fold(moment: str) -> None:
        if moment == snapshot:
            core.kept = core.broker.records()

    for at in range(6):
        core.publish(f"e{at}", priority=at % 2)
    session = subscribed(core, "from=earliest tries=1 prefetch=20")
    fold("before the deaths")
    core.type(session, *(f"nack t @{offset}" for offset in range(5)))
    fold("between")
    typed(core, "discard t as=s @0 @1 @2")
    fold("after")
    for _ in range(2):
        core.restart()
        assert [dead["offset"] for dead in answer(core, core.connect(), "dead")] == [4, 3]
        assert delivered(core) == ["e5"]


def test_a_discard_beside_a_redrive_settles_the_events_that_are_still_dead(core: Core) -> None:
    core.publish("a", "b", "c")
    session = let_die(core, 0, 1, 2)
    typed(core, "redrive t as=s all rate=1/s")
    assert typed(core, "discard t as=s all") == ["+OK discard t 3"]
    core.pass_time(10)
    assert core.receive(session) == []


def test_many_dead_events_are_discarded(core: Core) -> None:
    core.publish(*(f"e{at}" for at in range(5000)))
    session = subscribed(core, "from=earliest tries=1 prefetch=5000")
    core.type(session, *(f"nack t @{offset}" for offset in range(5000)))
    assert typed(core, "discard t as=s all") == ["+OK discard t 5000"]
    core.restart()
    assert delivered(core) == answer(core, core.connect(), "dead") == []


# Rights and misuse


STEERING = ("seek t as=s to=0", "pause t as=s", "resume t as=s", "discard t as=s all")


def test_only_the_owner_and_administrators_steer_a_subscription(core: Core) -> None:
    connect(core, ALICE, "sub t as=s")
    for access, expected in ((ALICE, "+"), (BOSS, "+"), (BOB, "forbidden"), (SHARING, "forbidden")):
        assert codes(core.type(connect(core, access), *STEERING)) == [expected] * 4, access.user
    reader = Access("ann", ("*",), ("u",), is_admin=True)
    assert codes(core.type(connect(core, reader), *STEERING)) == ["forbidden"] * 4


def test_only_durable_subscriptions_are_steered(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t")
    name = f"conn-{session.number}"
    lines = [line.replace("as=s", f"as={name}") for line in STEERING]
    assert codes(core.type(session, *lines)) == ["bad_arguments"] * 4
    assert codes(core.type(core.connect(), *lines, *STEERING)) == ["not_subscribed"] * 8
    assert codes(core.type(session, *(line.replace("seek t", "seek u") for line in STEERING[:1]))) == ["unknown_topic"]


@pytest.mark.parametrize(
    "line",
    [
        *("seek t as=s", "seek t to=0", "seek t as=s to=yesterday", "seek t as=s to=@", "seek t as=s to=0 now"),
        *("pause t", "pause t s", "pause t as=s as=s", "resume t as=", "resume t as=s to=0"),
        *("discard t as=s", "discard t @0 as=s", "discard t all", "purge t @0", "purge t before=", "purge"),
        *("drop t now", "drop", "create", "create t 7d", "create t age=7", "create t ages=7d"),
    ],
)
def test_a_wrong_line_is_refused(core: Core, line: str) -> None:
    subscribed(core)
    assert codes(typed(core, line)) == ["bad_arguments"]


def test_a_full_disk_refuses_commands_that_can_wait_and_accepts_those_that_make_room(core: Core) -> None:
    core.publish("a")
    let_die(core, 0)
    core.broker.set_full_disk("no room is left on the disk")
    assert codes(typed(core, "create u", *STEERING)) == ["disk"] * 5
    assert codes(typed(core, "purge t", "drop t")) == ["+", "+"]
