"""Confirmations that wait for marks, on a core without sockets."""

import json

import pytest

from broker.core import Session, mark_waits
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import ALICE, BOSS, codes, connect


def event(id_: str, more: str = "") -> str:
    return f'{{"id":"{id_}","msg":1{more}}}'


@pytest.fixture
def core() -> Core:
    return Core("t", "u")


@pytest.fixture
def publisher(core: Core) -> Session:
    return core.connect()


@pytest.fixture
def bridge(core: Core) -> Session:
    return core.connect()


def test_an_event_is_confirmed_as_replicated_once_every_mark_has_passed_it(
    core: Core, publisher: Session, bridge: Session
) -> None:
    core.type(bridge, "mark t as=a @0", "mark t as=b @0")
    assert core.type(publisher, f"pub t after=b,a {event('1')}") == []
    core.type(bridge, "mark t as=a @1")
    assert core.receive(publisher) == []
    core.type(bridge, "mark t as=b @1")
    assert core.receive(publisher) == ["+OK pub t 0 replicated"]


def test_after_the_time_the_reply_names_the_promise_that_is_kept(core: Core, publisher: Session) -> None:
    assert core.type(publisher, f"pub t after=nobody within=1s {event('1')}", "ping") == []
    core.pass_time(0.9)
    assert core.receive(publisher) == []
    core.pass_time(0.2)
    assert core.receive(publisher) == ["+OK pub t 0 synced", "+PONG"]


def test_a_topic_sets_the_marks_that_its_confirmations_wait_for(
    core: Core, publisher: Session, bridge: Session
) -> None:
    assert core.type(bridge, "confirm t") == ["+OK confirm t after=none within=5s"]
    assert core.type(bridge, "confirm t after=b,a,b within=500ms") == ["+OK confirm t after=a,b within=500ms"]
    assert core.type(bridge, "confirm t within=2s") == ["+OK confirm t after=a,b within=2s"]
    core.type(bridge, "confirm t after=a")
    assert core.type(publisher, f"pub t {event('1')}", f"pub t after=none {event('2')}") == []
    core.type(bridge, "mark t as=a @1")
    assert core.receive(publisher) == ["+OK pub t 0 replicated", "+OK pub t 1 synced"]
    assert core.type(bridge, "confirm t after=none") == ["+OK confirm t after=none within=2s"]
    assert core.type(publisher, f"pub t {event('3')}") == ["+OK pub t 2 synced"]


@pytest.mark.parametrize("is_folded", [False, True])
def test_the_setting_survives_a_restart_and_ends_with_its_topic(core: Core, bridge: Session, is_folded: bool) -> None:
    core.type(bridge, "confirm t after=a within=3s")
    core.restart(is_folded=is_folded)
    session = core.connect()
    assert core.type(session, "confirm t") == ["+OK confirm t after=a within=3s"]
    stats = json.loads(core.type(session, "stats t")[0].removeprefix("+OK stats "))
    assert stats["topics"]["t"]["confirm"] == {"after": ["a"], "within_ms": 3000}
    core.type(session, "drop t")
    core.publish("1")
    core.restart(is_folded=is_folded)
    assert core.type(core.connect(), "confirm t") == ["+OK confirm t after=none within=5s"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("confirm t after=a,,b", "bad_name"),
        ("confirm t after=a/b", "bad_name"),
        ("confirm t after=none,a", "bad_arguments"),
        (f"confirm t after={','.join(f'm{n}' for n in range(9))}", "bad_arguments"),
        ("confirm t within=0s", "bad_arguments"),
        ("confirm t within=21s", "bad_arguments"),
        ("confirm t within=1e9s", "bad_arguments"),
        ("confirm t after=", "bad_arguments"),
        ("confirm t after=a after=b", "bad_arguments"),
        ("confirm t other=1", "bad_arguments"),
        ("confirm unknown after=a", "unknown_topic"),
        (f"pub t after= {event('1')}", "bad_arguments"),
        (f"pub t within=1h {event('1')}", "bad_arguments"),
        (f"pub t after=a/b {event('1')}", "bad_name"),
        ("pub t after=a", "bad_json"),
        ("pub t after=a hello", "bad_json"),
    ],
)
def test_a_wrong_wait_is_refused_and_nothing_is_stored(core: Core, publisher: Session, line: str, code: str) -> None:
    assert codes(core.type(publisher, line)) == [code]
    assert core.broker.topics["t"].next == 0


def test_subscribers_receive_an_event_when_it_is_stored(core: Core, publisher: Session) -> None:
    consumer = core.connect()
    core.type(consumer, "sub t as=s prefetch=9")
    assert core.type(publisher, f"pub t after=a {event('1')}") == []
    assert core.receive(consumer)[0].startswith('{"topic":"t","offset":0')


def test_replies_keep_their_order_across_topics(core: Core, publisher: Session, bridge: Session) -> None:
    lines = (f"pub t after=a {event('1')}", f"pub u {event('2')}", f"pub u after=b {event('3')}", "ping")
    assert core.type(publisher, *lines) == []
    core.type(bridge, "mark u as=b @2")
    assert core.receive(publisher) == []
    core.type(bridge, "mark t as=a @1")
    assert core.receive(publisher) == [
        "+OK pub t 0 replicated",
        "+OK pub u 0 synced",
        "+OK pub u 1 replicated",
        "+PONG",
    ]


def test_a_run_is_confirmed_in_the_parts_that_the_marks_pass(core: Core, publisher: Session, bridge: Session) -> None:
    core.type(bridge, "confirm t after=a")
    assert core.type(publisher, *(f"pub t {event(str(n))}" for n in range(10))) == []
    core.type(bridge, "mark t as=a @4 except @1")
    assert core.receive(publisher) == ["+OK pub t 0 replicated", "+OK pub t 1 synced", "+OK pub t 2-3 replicated"]
    core.type(bridge, "mark t as=a @10 except @9")
    assert core.receive(publisher) == ["+OK pub t 4-8 replicated", "+OK pub t 9 synced"]


def test_a_part_that_is_late_and_a_part_that_is_replicated(core: Core, publisher: Session, bridge: Session) -> None:
    core.type(bridge, "confirm t after=a within=1s", "mark t as=a @0")
    core.type(publisher, f"pub t {event('0')}", f"pub t {event('1')}")
    core.pass_time(0.5)
    core.type(publisher, f"pub t {event('2')}")
    core.pass_time(0.6)
    assert core.receive(publisher) == ["+OK pub t 0-1 synced"]
    core.type(bridge, "mark t as=a @3")
    assert core.receive(publisher) == ["+OK pub t 2 replicated"]
    stats = json.loads(core.type(bridge, "stats")[0].removeprefix("+OK stats "))
    assert (stats["confirmed_replicated"], stats["confirmed_late"]) == (1, 2)


def test_a_duplicate_waits_and_waits_again_after_it_was_late(core: Core, publisher: Session, bridge: Session) -> None:
    core.type(bridge, "confirm t after=a within=1s", "mark t as=a @0")
    line = "pub t " + event("1", ',"producer":"p","sequence":1')
    assert core.type(publisher, line, line) == []
    core.pass_time(1.1)
    assert core.receive(publisher) == ["+OK pub t 0 synced", "+OK dup t 0 synced"]
    assert core.type(publisher, line) == []
    core.pass_time(0.5)
    assert core.receive(publisher) == []
    core.type(bridge, "mark t as=a @1")
    assert core.receive(publisher) == ["+OK dup t 0 replicated"]
    assert core.type(publisher, line) == ["+OK dup t 0 replicated"]


def test_a_handshake_is_complete_once_its_event_is_replicated(core: Core, bridge: Session) -> None:
    core.type(bridge, "confirm t after=a within=1s", "mark t as=a @0")
    client = core.connect()
    core.type(client, "hello ann")
    assert core.type(client, f"pub2 t {event('1')}") == ["+REC t 1"]
    assert core.type(client, "pubrel t 1") == []
    core.type(bridge, "mark t as=a @1")
    assert core.receive(client) == ["+COMP t 1 0 replicated"]
    assert core.type(client, "pubrel t 1") == ["+COMP t 1 0 replicated"]
    core.type(client, f"pub2 t {event('2')}")
    assert core.type(client, "pubrel t 2") == []
    core.pass_time(1.1)
    assert core.receive(client) == ["+COMP t 2 1 synced"]


def test_refused_events_of_a_failed_write_do_not_wait(core: Core, publisher: Session, bridge: Session) -> None:
    core.type(bridge, "confirm t after=a within=1s", "mark t as=a @0")
    assert core.type(publisher, f"pub t {event('0')}") == []
    core.fail_with = "no room"
    assert core.type(publisher, f"pub t {event('1')}") == []
    core.fail_with = None
    core.type(bridge, "mark t as=a @1")
    first, second = core.receive(publisher)
    assert (first, second[:9]) == ("+OK pub t 0 replicated", "-ERR disk")


def test_waits_end_at_shutdown_with_the_lesser_promise(core: Core, publisher: Session) -> None:
    core.type(publisher, f"pub t after=a {event('1')}")
    core.broker.begin_drain()
    assert core.receive(publisher) == ["+OK pub t 0 synced"]
    assert core.type(publisher, f"pub t after=a {event('2')}") == ["+OK pub t 1 synced"]


def test_waits_end_when_their_topic_is_dropped(core: Core, publisher: Session, bridge: Session) -> None:
    assert core.type(publisher, f"pub t after=a {event('1')}", f"pub u after=a {event('2')}") == []
    other = core.connect()
    assert core.type(other, f"pub u after=a {event('3')}", f"pub t after=a {event('4')}", f"pub t {event('5')}") == []
    core.type(bridge, "drop t")
    assert core.receive(publisher) == ["+OK pub t 0 synced"]
    core.type(bridge, f"pub t {event('6')}", "mark u as=a @2")
    assert core.receive(publisher) == ["+OK pub u 0 replicated"]
    assert core.receive(other) == ["+OK pub u 1 replicated", "+OK pub t 1 synced", "+OK pub t 2 synced"]


def test_an_unmarked_mark_has_passed_nothing(core: Core, publisher: Session, bridge: Session) -> None:
    core.type(bridge, "confirm t after=a within=1s", "mark t as=a @0")
    core.type(publisher, f"pub t {event('1')}")
    core.type(bridge, "unmark t as=a")
    assert core.receive(publisher) == []
    core.type(bridge, "mark t as=a @1")
    assert core.receive(publisher) == ["+OK pub t 0 replicated"]


def test_a_client_that_leaves_costs_nothing_after_its_time(core: Core, bridge: Session) -> None:
    for n in range(50):
        gone = core.connect()
        core.type(gone, f"pub t after=a within=1s {event(str(n))}")
        core.disconnect(gone)
    core.pass_time(1.2)
    assert not core.broker._desk.waits._living
    assert not core.broker._desk.waits._current


def test_the_number_of_different_waits_is_limited(core: Core, publisher: Session) -> None:
    many = mark_waits.TOPIC_WAITS_MAX
    assert core.type(publisher, *(f"pub t after=m{n} within=1s {event(str(n))}" for n in range(many + 1))) == []
    core.pass_time(1.2)
    replies = core.receive(publisher)
    assert codes(replies) == ["+"] * many + ["too_many"]
    assert core.type(publisher, f"pub t after=none {event('x')}") == [f"+OK pub t {many} synced"]


def test_a_parked_session_is_not_looked_at_for_each_commit(core: Core, publisher: Session, bridge: Session) -> None:
    core.type(publisher, f"pub t after=a {event('1')}")
    core.publish("2")
    assert publisher not in core.broker._desk._awaiting["t"]
    core.type(bridge, "mark t as=a @1")
    assert core.receive(publisher) == ["+OK pub t 0 replicated"]


def test_only_administrators_set_what_a_topic_waits_for(core: Core) -> None:
    assert codes(core.type(connect(core, ALICE), "confirm t after=a", f"pub t after=none {event('1')}")) == [
        "forbidden",
        "+",
    ]
    assert codes(core.type(connect(core, BOSS), "confirm t after=a")) == ["+"]


def test_duplicates_that_wait_again_wait_together(core: Core, publisher: Session) -> None:
    numbered = [event(str(n), f',"producer":"p","sequence":{n}') for n in range(mark_waits.TOPIC_WAITS_MAX)]
    repeated = [f"pub t after=nobody within=1s {one}" for one in numbered]
    core.type(publisher, *repeated)
    core.pass_time(0.6)
    core.type(publisher, f"pub t after=nobody within=1s {event('later')}")
    core.pass_time(0.6)
    again = core.connect()
    assert core.type(again, *repeated) == []
    assert core.type(core.connect(), f"pub t after=another within=1s {event('other')}") == []
    core.pass_time(1.2)
    assert len(core.receive(again)) == mark_waits.TOPIC_WAITS_MAX
