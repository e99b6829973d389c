"""Requests and their replies, on a core without sockets."""

import json
import random
from typing import Any

import pytest

from broker.core import Session
from broker.core.outbox import HIGH_WATER_BYTES
from broker.core.verbs.requesting import WAITING_MAX
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import ALICE, BOB, codes, connect
from tweetwire.protocol.notices import read_replied


@pytest.fixture
def core() -> Core:
    return Core("t")


def ask(id_: str, **members: Any) -> str:
    return json.dumps({"id": id_, "msg": id_, **members})


def request(core: Core, session: Session, id_: str, options: str = "timeout=5s") -> str:
    """Send a request, and return the token of its connection."""
    (reply,) = core.type(session, f"request t {options} {ask(id_)}")
    assert reply.startswith("+OK request t "), reply
    return str(stored(core, int(reply.split()[3]))["headers"]["reply-to"])


def stored(core: Core, offset: int, topic: str = "t") -> dict[str, Any]:
    line = core.type(core.connect(), f"read {topic} {offset} limit=1")[1]
    return dict(json.loads(line))


def answer(core: Core, id_: str, token: str, msg: Any = "done", **members: Any) -> None:
    event = json.dumps({"id": f"answer-{id_}", "msg": msg, "key": token, "parent": id_, **members})
    (reply,) = core.type(core.connect(), f"pub replies {event}")
    assert reply.startswith("+OK pub replies "), reply


def test_the_reply_comes_as_a_notice_after_the_confirmation(core: Core) -> None:
    session = core.connect()
    assert core.type(session, f"request t timeout=5s {ask('r1')}") == ["+OK request t 0 synced"]
    token = stored(core, 0)["headers"]["reply-to"]
    answer(core, "r1", token)
    (line,) = core.receive(session)
    assert line.startswith('!reply t 0 {"topic":"replies","offset":0,')
    replied = read_replied(line.encode())
    assert replied is not None
    assert replied.id == "r1"
    assert replied.event is not None
    assert (replied.event.parent, replied.event.decode()) == ("r1", "done")


def test_other_commands_are_answered_while_a_request_waits(core: Core) -> None:
    session = core.connect()
    replies = core.type(session, f"request t {ask('r1')}", "ping", f"pub t {ask('x')}")
    assert replies == ["+OK request t 0 synced", "+PONG", "+OK pub t 1 synced"]


def test_headers_of_the_requester_stay(core: Core) -> None:
    core.type(core.connect(), f"request t {ask('r1', headers={'a': 'b'})}")
    assert stored(core, 0)["headers"] | {"reply-to": ""} == {"a": "b", "reply-to": ""}


def test_a_request_without_a_reply_times_out_once(core: Core) -> None:
    session = core.connect()
    request(core, session, 'r "1"', "timeout=2s")
    core.pass_time(1.9)
    assert core.receive(session) == []
    core.pass_time(0.2)
    (line,) = core.receive(session)
    assert line == r'!timeout t 0 "r \"1\""'
    core.pass_time(5)
    assert core.receive(session) == []
    assert (core.broker.counts["requests"], core.broker.counts["unreplied"]) == (1, 1)


def test_a_late_reply_is_stored_and_sent_to_no_connection(core: Core) -> None:
    session = core.connect()
    token = request(core, session, "r1", "timeout=1s")
    core.pass_time(2)
    core.receive(session)
    answer(core, "r1", token)
    assert core.receive(session) == []
    assert stored(core, 0, "replies")["parent"] == "r1"


def test_only_the_first_reply_is_sent(core: Core) -> None:
    session = core.connect()
    token = request(core, session, "r1")
    core.hold = True
    other = core.connect()
    core.type(other, *(f'pub replies {{"id":"{n}","msg":{n},"key":"{token}","parent":"r1"}}' for n in (1, 2)))
    core.hold = False
    core.carry_out()
    (line,) = core.receive(session)
    assert '"msg":1' in line


def test_a_reply_with_another_token_or_id_answers_no_request(core: Core) -> None:
    session, other = core.connect(), core.connect()
    token, foreign = request(core, session, "r1"), request(core, other, "r2")
    assert token != foreign
    answer(core, "r1", foreign)
    answer(core, "r1", token[:-1])
    answer(core, "r2", token)
    core.type(core.connect(), 'pub replies {"id":"x","msg":1}', f'pub replies {{"id":"x","msg":1,"key":"{token}"}}')
    assert (core.receive(session), core.receive(other)) == ([], [])
    answer(core, "r1", token)
    assert len(core.receive(session)) == 1


def test_requests_on_one_connection_have_different_ids_and_a_limit(core: Core) -> None:
    session = core.connect()
    token = request(core, session, "r0")
    assert codes(core.type(session, f"request t {ask('r0')}")) == ["bad_event"]
    for number in range(1, WAITING_MAX):
        request(core, session, f"r{number}")
    assert codes(core.type(session, f"request t {ask('more')}")) == ["too_many"]
    answer(core, "r0", token)
    core.receive(session)
    request(core, session, "r0")
    request(core, core.connect(), "r0")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("request", "bad_arguments"),
        ("request t", "bad_arguments"),
        ("request t timeout=5s", "bad_arguments"),
        (f"request t timeout=0s {ask('r')}", "bad_arguments"),
        (f"request t timeout=2h {ask('r')}", "bad_arguments"),
        (f"request t timeout=5 {ask('r')}", "bad_arguments"),
        (f"request t timeout= {ask('r')}", "bad_arguments"),
        (f"request t timeout=1s timeout=1s {ask('r')}", "bad_arguments"),
        (f"request t wait=1s {ask('r')}", "bad_arguments"),
        (f"request .t {ask('r')}", "bad_name"),
        (f"request dead_letters {ask('r')}", "forbidden"),
        ("request t hello", "bad_json"),
        ('request t {"id":1,"msg":1}', "bad_event"),
        (f"request t {ask('r', producer='p', sequence=1)}", "bad_event"),
        (f"request t {ask('r', headers={'reply-to': 'x'})}", "bad_event"),
        (f"request t {ask('r', headers={'a': 1})}", "bad_event"),
    ],
)
def test_a_wrong_request_is_refused(core: Core, line: str, code: str) -> None:
    session = core.connect()
    assert codes(core.type(session, line, "ping")) == [code, "+"]
    core.pass_time(6)
    assert core.receive(session) == []


def test_a_request_that_could_not_be_stored_is_refused_and_no_longer_waits(core: Core) -> None:
    session = core.connect()
    core.fail_with = "disk full"
    assert codes(core.type(session, f"request t {ask('r1')}")) == ["disk"]
    core.fail_with = None
    core.pass_time(6)
    assert core.receive(session) == []
    request(core, session, "r1")


def test_a_reply_that_could_not_be_stored_answers_nothing_and_may_be_sent_again(core: Core) -> None:
    session = core.connect()
    token = request(core, session, "r1")
    core.fail_with = "disk full"
    core.type(core.connect(), f'pub replies {{"id":"x","msg":1,"key":"{token}","parent":"r1"}}')
    core.fail_with = None
    assert core.receive(session) == []
    answer(core, "r1", token, 2)
    (line,) = core.receive(session)
    assert '"msg":2' in line


def test_a_connection_that_does_not_read_gets_its_replies_when_it_has_room(core: Core) -> None:
    session = core.connect()
    token = request(core, session, "r1", "timeout=1s")
    request(core, session, "r2", "timeout=1s")
    answer(core, "r1", token, "x" * HIGH_WATER_BYTES)
    answer(core, "r2", token, "small")
    core.pass_time(3)
    assert session.outbox.size < HIGH_WATER_BYTES + 1000
    first, second = core.receive(session)
    assert ('"parent":"r1"' in first, '"parent":"r2"' in second) == (True, True)


def test_a_reply_that_left_the_memory_before_there_was_room_counts_as_none(core: Core) -> None:
    session = core.connect()
    token = request(core, session, "r1")
    request(core, session, "r2")
    answer(core, "r1", token, "x" * HIGH_WATER_BYTES)
    answer(core, "r2", token, "small")
    for _ in range(8):
        answer(core, "none", "none", "y" * (HIGH_WATER_BYTES // 4))
    first, second = core.receive(session)
    assert '"parent":"r1"' in first
    assert second == '!timeout t 1 "r2"'


def test_the_requests_of_a_lost_connection_no_longer_wait(core: Core) -> None:
    session = core.connect()
    token = request(core, session, "r1")
    core.disconnect(session)
    answer(core, "r1", token)
    core.pass_time(6)
    assert core.bugs == []
    assert core.broker.counts["unreplied"] == 0


def test_a_dropped_reply_topic_is_made_again_by_the_next_request(core: Core) -> None:
    session = core.connect()
    request(core, session, "r1", "timeout=1s")
    assert core.type(core.connect(), "drop replies") == ["+OK drop replies"]
    token = request(core, session, "r2")
    answer(core, "r2", token)
    assert '"parent":"r2"' in core.receive(session)[0]
    core.pass_time(2)
    assert core.receive(session) == ['!timeout t 0 "r1"']


def test_a_broker_that_makes_no_unknown_topics_makes_the_topic_of_replies() -> None:
    core = Core("t", makes_unknown=False)
    session = core.connect()
    token = request(core, session, "r1")
    answer(core, "r1", token)
    assert len(core.receive(session)) == 1
    assert codes(core.type(session, f"request unknown {ask('r2')}")) == ["unknown_topic"]


def test_the_topic_of_replies_has_a_retention_and_is_read_with_a_pattern_that_names_it(core: Core) -> None:
    alice = connect(core, ALICE)
    token = request(core, alice, "r1")
    bob = connect(core, BOB)
    event = f'{{"id":"x","msg":1,"key":"{token}","parent":"r1"}}'
    assert codes(core.type(bob, f"pub replies {event}", "read replies 0", "sub replies")) == [
        "+",
        "forbidden",
        "forbidden",
    ]
    assert len(core.receive(alice)) == 1
    assert core.type(core.connect(), "retain replies") == [
        "+OK retain replies age=1d bytes=none settled=no at_most=1GiB"
    ]


@pytest.mark.parametrize("seed", range(20))
def test_random_requests_end_exactly_once(seed: int) -> None:
    """Each request ends with its reply or a timeout, or its connection ends first. No reply goes to another connection."""
    rng, core = random.Random(seed), Core("t")
    sessions: dict[Session, dict[str, None]] = {core.connect(): {} for _ in range(3)}
    tokens: dict[Session, str] = {}
    number = 0

    def collect(session: Session) -> None:
        for line in core.receive(session):
            replied = read_replied(line.encode())
            assert replied is not None, line
            assert replied.event is None or replied.event.decode() == replied.id
            del sessions[session][replied.id]

    for _ in range(400):
        session = rng.choice(list(sessions))
        match rng.randrange(6):
            case 0 | 1:
                number += 1
                sessions[session][f"r{number}"] = None
                tokens[session] = request(core, session, f"r{number}", f"timeout={rng.randint(1, 9)}s")
            case 2 | 3 if sessions[session]:
                id_ = rng.choice(list(sessions[session]))
                answer(core, id_, tokens[session], id_)
            case 4:
                core.pass_time(rng.random() * 2)
            case 5 if rng.random() < 0.1:
                core.disconnect(session)
                del sessions[session]
                sessions[core.connect()] = {}
            case _:
                core.type(core.connect(), f'pub t {{"id":"{number}","msg":1}}')
        for one in sessions:
            collect(one)
    core.pass_time(12)
    for one in sessions:
        collect(one)
    assert not any(sessions.values())
    assert core.bugs == []


def test_a_delayed_request_is_delivered_when_it_is_due(core: Core) -> None:
    core.type(core.connect(), f"request t {ask('r-1', delay='5m', expires='1h')}")
    assert "delay" not in stored(core, 0)
    responder = core.connect()
    assert len(core.type(responder, "sub t from=earliest")) == 1
    core.pass_time(301)
    assert [json.loads(line)["id"] for line in core.receive(responder)] == ["r-1"]


def test_a_failed_write_ends_no_request_to_a_dropped_topic_of_the_same_name(core: Core) -> None:
    session = core.connect()
    request(core, session, "r-1", "timeout=1s")
    other = core.connect()
    core.type(other, "drop t")
    core.fail_with = "disk full"
    assert codes(core.type(other, f"pub t {ask('1')}")) == ["disk"]
    core.pass_time(1.1)
    assert core.receive(session) == ['!timeout t 0 "r-1"']
