"""Exactly-once handshakes at the broker: repeat every step, across connections, restarts and failed writes."""

import json
from typing import Any

import pytest

from broker.core import Session
from broker.log import MemoryLog
from tests.broker.core.harness import Core
from tests.support.paths import ROOT
from tweetwire.protocol.handshakes import TABLE, Half, State, Step, markdown, move

DOCUMENT = ROOT / "docs" / "reference" / "protocol.md"
EVENT = '{"id":"e1","priority":2,"msg":{"n":1}}'


def named(core: Core, name: str = "ann") -> Session:
    session = core.connect()
    core.type(session, f"hello {name}")
    return session


def stored(core: Core, topic: str = "t") -> list[Any]:
    log = core.logs.by_topic[topic]
    return [json.loads(line)["id"] for line in log.read(0, 100, 1 << 20)[0]]


def subscribed(core: Core, name: str = "ann", options: str = "prefetch=10") -> tuple[Session, list[Any]]:
    session = named(core, name)
    reply, *lines = core.type(session, f"sub t as=s from=earliest qos=2 {options}")
    assert reply.startswith("+OK sub t as=s"), reply
    return session, [json.loads(line)["id"] for line in lines]


def test_the_table_in_the_documentation_is_the_one_in_use() -> None:
    assert markdown() in DOCUMENT.read_text()


def test_the_table_is_closed_and_every_half_reaches_its_end() -> None:
    ends = {
        Half.BROKER_PUBLISHING: State.STORED,
        Half.CLIENT_PUBLISHING: State.CONFIRMED,
        Half.BROKER_CONSUMING: State.SETTLED,
        Half.CLIENT_CONSUMING: State.CONFIRMED,
    }
    for half, moves in TABLE.items():
        states = {state for state, _ in moves} | {to.state for to in moves.values()}
        for begun in states:
            reached = {begun}
            while more := {to.state for (state, _), to in moves.items() if state in reached} - reached:
                reached |= more
            assert ends[half] in reached, (half, begun)
        for (state, step), to in moves.items():
            # A repeated step has the same reply or no reply, unless this half of the handshake is finished and forgotten.
            again = move(half, to.state, step)
            assert again is None or again.says in {to.says, ""} or to.state is State.ACKED, (half, state, step)
    assert move(Half.BROKER_PUBLISHING, State.NOTHING, Step.PUBREL) is None


def test_a_message_is_stored_once_however_often_each_step_is_sent() -> None:
    core = Core()
    session = named(core)
    assert core.type(session, *[f"pub2 t {EVENT}"] * 3, *["pubrel t e1"] * 3, f"pub2 t {EVENT}", "pubrel t e1") == [
        *["+REC t e1"] * 3,
        *["+COMP t e1 0 synced"] * 3,
        "+REC t e1",
        "+COMP t e1 0 synced",
    ]
    assert stored(core) == ["e1"]


def test_a_held_message_is_not_delivered_before_it_is_released() -> None:
    core = Core("t")
    reader = core.connect()
    core.type(reader, "sub t")
    session = named(core)
    core.type(session, f"pub2 t {EVENT}")
    assert core.receive(reader) == []
    core.type(session, "pubrel t e1")
    (line,) = core.receive(reader)
    assert line.endswith(',"id":"e1","priority":2,"msg":{"n":1}}')


@pytest.mark.parametrize("is_folded", [False, True])
def test_each_step_may_be_repeated_after_a_restart(is_folded: bool) -> None:
    core = Core()
    for line, reply in (
        (f"pub2 t {EVENT}", "+REC t e1"),
        (f"pub2 t {EVENT}", "+REC t e1"),
        ("pubrel t e1", "+COMP t e1 0 synced"),
        ("pubrel t e1", "+COMP t e1 0 synced"),
        (f"pub2 t {EVENT}", "+REC t e1"),
        ("pubrel t e1", "+COMP t e1 0 synced"),
    ):
        assert core.type(named(core), line) == [reply]
        core.restart(is_folded=is_folded)
    assert stored(core) == ["e1"]


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("is_folded", [False, True])
def test_a_broker_killed_while_it_stores_a_message_finds_in_its_log_whether_it_did(
    is_written: bool, is_folded: bool
) -> None:
    core = Core()
    session = named(core)
    core.type(session, f"pub2 t {EVENT}")
    core.hold = True
    core.type(session, "pubrel t e1")
    if is_written:
        core.broker.topics["t"].log.append(core.broker.topics["t"].begin_write())
    core.hold = False
    core.restart(is_folded=is_folded)
    # Another event takes the offset that the message would have had.
    other = named(core, "other")
    core.type(other, 'pub t {"id":"e2","msg":2}')
    offset = 0 if is_written else 1
    assert core.type(named(core), "pubrel t e1") == [f"+COMP t e1 {offset} synced"]
    assert sorted(stored(core)) == ["e1", "e2"]


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_stored_message_is_known_after_retention_has_removed_it(is_folded: bool) -> None:
    core = Core()
    log = core.logs.by_topic["t"] = MemoryLog(span_bytes=1)
    core.type(named(core), f"pub2 t {EVENT}", "pubrel t e1")
    core.type(named(core), 'pub t {"id":"e2","msg":2}')
    log.forget_below(1)
    assert log.earliest == 1
    core.restart(is_folded=is_folded)
    assert core.type(named(core), f"pub2 t {EVENT}", "pubrel t e1") == ["+REC t e1", "+COMP t e1 0 synced"]
    assert log.next == 2


def test_a_write_that_fails_leaves_the_message_held() -> None:
    core = Core()
    session = named(core)
    core.type(session, f"pub2 t {EVENT}")
    core.fail_with = "No space left on device"
    assert core.type(session, "pubrel t e1", "ping") == ["-ERR disk No space left on device", "+PONG"]
    core.fail_with = None
    core.type(session, 'pub t {"id":"e1","msg":"another"}')
    core.restart()
    session = named(core)
    assert core.type(session, "pubrel t e1") == ["+COMP t e1 1 synced"]


def test_the_same_id_of_another_client_or_topic_is_another_message() -> None:
    core = Core()
    ann, bob = named(core), named(core, "bob")
    for session, topic in ((ann, "t"), (bob, "t"), (ann, "u")):
        core.type(session, f"pub2 {topic} {EVENT}", f"pubrel {topic} e1")
    assert (stored(core), stored(core, "u")) == (["e1", "e1"], ["e1"])


def test_a_sequence_within_a_handshake_counts() -> None:
    core = Core()
    session = named(core)
    event = '{"id":"%s","msg":1,"producer":"p","sequence":4}'
    core.type(session, f"pub t {event % 'first'}", f"pub2 t {event % 'second'}")
    assert core.type(session, "pubrel t second", "pubrel t second") == ["+COMP t second 0 synced"] * 2
    assert stored(core) == ["first"]


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("pubrel t nobody", "-ERR no_event no message is held under that id; send it with pub2 first"),
        ("pubrec t @0", "-ERR stale no such event is in flight on this connection, or was taken by this client"),
        ("pubcomp t @0", "-ERR stale no such event is in flight on this connection, or was taken by this client"),
        (
            'pub2 t {"id":"a b","msg":1}',
            "-ERR bad_event an id for pub2 is one word, with no white space",
        ),
        (
            'pub2 t {"id":"a\\u2028b","msg":1}',
            "-ERR bad_event an id for pub2 is one word, with no white space",
        ),
        (
            "pub2 t",
            "-ERR bad_arguments usage: pub2 <topic> [delay=5m|at=<time>] [expires=10m|<time>] <event>;"
            ' an example: pub2 <topic> {"id":"1","msg":"hello"}',
        ),
        ("pubrel t", "-ERR bad_arguments usage: pubrel <topic> <id>"),
        (
            "sub t qos=2",
            "-ERR bad_arguments qos=2 needs a subscription that outlives its connection: as=<subscription>",
        ),
        ("sub t as=s qos=3", "-ERR bad_arguments qos is a whole number from 1 to 2"),
    ],
)
def test_a_step_that_the_table_lacks_is_refused(line: str, reply: str) -> None:
    core = Core("t")
    assert core.type(named(core), line) == [reply]


def test_a_handshake_needs_a_name() -> None:
    core = Core("t")
    (reply,) = core.type(core.connect(), f"pub2 t {EVENT}")
    assert reply.startswith("-ERR bad_arguments say hello <name> first")


def test_a_message_must_meet_the_schema_when_it_is_given() -> None:
    core = Core()
    session = named(core)
    core.type(session, 'schema t {"type":"integer"}')
    assert core.type(session, f"pub2 t {EVENT}", "pubrel t e1") == [
        '-ERR schema msg: {"n":1} is not of type "integer"',
        "-ERR no_event no message is held under that id; send it with pub2 first",
    ]


def test_an_event_is_taken_once_however_often_each_step_is_sent() -> None:
    core = Core()
    core.type(named(core, "pub"), f"pub t {EVENT}")
    session, events = subscribed(core)
    assert events == ["e1"]
    assert core.type(
        session, *["pubrec t e1"] * 2, "pubrec t @0", *["pubcomp t @0"] * 2, "pubcomp t e1", "pubrec t @0"
    ) == [
        *["+REL t e1"] * 2,
        "+REL t @0",
        *["+OK comp t @0"] * 2,
        "+OK comp t e1",
        "+REL t @0",
    ]
    assert core.broker._verbs.exactly_once.report() == {"held": 0, "storing": 0, "taken": 0}


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_taken_event_is_never_given_again(is_folded: bool) -> None:
    core = Core()
    core.type(named(core, "pub"), f"pub t {EVENT}")
    session, _ = subscribed(core)
    core.type(session, "pubrec t @0")
    core.disconnect(session)
    assert subscribed(core, "bob")[1] == []
    core.restart(is_folded=is_folded)
    assert subscribed(core, "bob")[1] == []
    session, events = subscribed(core)
    assert events == []
    assert core.type(session, "pubrec t @0", "pubcomp t @0") == ["+REL t @0", "+OK comp t @0"]
    core.restart(is_folded=is_folded)
    assert core.type(named(core), "pubcomp t @0") == ["+OK comp t @0"]


def test_an_event_that_was_not_taken_is_given_again_and_another_client_may_take_it() -> None:
    core = Core()
    core.type(named(core, "pub"), f"pub t {EVENT}")
    session, _ = subscribed(core)
    core.disconnect(session)
    other, events = subscribed(core, "bob")
    assert events == ["e1"]
    assert core.type(other, "pubrec t @0") == ["+REL t @0"]
    late = named(core)
    core.type(late, "sub t as=s")
    (reply,) = core.type(late, "pubrec t @0")
    assert reply.startswith("-ERR stale")


def test_a_taken_event_counts_towards_the_prefetch_until_it_is_done_also_on_a_new_connection() -> None:
    core = Core()
    core.type(named(core, "pub"), *(f'pub t {{"id":"e{n}","msg":1}}' for n in range(3)))
    session, events = subscribed(core, options="prefetch=1")
    assert events == ["e0"]
    assert core.type(session, "pubrec t @0") == ["+REL t @0"]
    core.disconnect(session)
    session, events = subscribed(core, options="prefetch=1")
    assert events == []
    (reply,) = core.type(session, "explain t @1 as=s")
    assert "as many in flight as its prefetch allows" in reply
    reply, line = sorted(core.type(session, "pubcomp t @0"))
    assert (reply, json.loads(line)["id"]) == ("+OK comp t @0", "e1")


def test_a_name_whose_subscription_has_ended_starts_from_the_beginning() -> None:
    core = Core()
    core.type(named(core, "pub"), f"pub t {EVENT}")
    session, _ = subscribed(core)
    core.type(session, "pubrec t @0", "unsub t as=s end")
    core.restart()
    session, events = subscribed(core)
    assert events == ["e1"]
    assert core.type(session, "pubrec t @0") == ["+REL t @0"]
