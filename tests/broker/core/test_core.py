"""The decisions of the core, one behaviour at a time. The inputs are lines that a person could type."""

import json
from typing import Any

import pytest

from broker.core import Access, Session
from tests.broker.core.harness import Core
from tweetwire.protocol import parse_lines
from tweetwire.protocol.errors import Refusal


@pytest.fixture
def core() -> Core:
    return Core("t")


def ids(lines: list[str]) -> list[str]:
    return [json.loads(line)["id"] for line in lines if line.startswith("{")]


def answer(core: Core, session: Session, line: str) -> Any:
    (reply,) = core.type(session, line)
    assert reply.startswith("+OK"), reply
    return json.loads(reply[min(i for i in (reply.find("{"), reply.find("[")) if i >= 0) :])


def read(core: Core, topic: str) -> list[dict[str, Any]]:
    head, *lines = core.type(core.connect(), f"read {topic} earliest")
    assert head.startswith(f"+OK read {topic} {len(lines)} next=")
    return [json.loads(line) for line in lines]


def test_delayed_retries_do_not_fill_the_prefetch(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s prefetch=2 backoff=1h tries=9")
    core.publish("a", "b")
    assert ids(core.receive(session)) == ["a", "b"]
    core.type(session, "nack t a", "nack t b")
    core.publish("c")
    assert ids(core.receive(session)) == ["c"]
    assert answer(core, session, "explain t a as=s")["for_ms"] == 3_600_000


def test_events_in_flight_are_pending_as_soon_as_the_last_reader_leaves(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s")
    core.publish("a")
    core.receive(session)
    core.disconnect(session)
    stats = answer(core, core.connect(), "stats")["topics"]["t"]["subscriptions"]["s"]
    assert (stats["pending"], stats["in_flight"], stats["consumers"]) == (1, 0, 0)


def test_the_timeout_starts_when_the_bytes_were_sent_and_extend_restarts_it(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s timeout=5s")
    core.publish("a")
    core.pass_time(60)
    assert ids(core.receive(session)) == ["a"]
    core.pass_time(4)
    assert core.type(session, "extend t a") == ["+OK extend t 1"]
    core.pass_time(4)
    assert core.receive(session) == []
    core.pass_time(1.2)
    (line,) = core.receive(session)
    assert line.startswith('{"try":2,"topic":"t","offset":0,')


def test_an_event_that_is_extended_before_its_sending_has_ended_still_times_out(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s timeout=5s")
    core.publish("a")
    assert b'"id":"a"' in session.take_output()
    (extend,) = parse_lines([b"extend t a"], 100)
    assert not isinstance(extend, Refusal)
    core.broker.execute(session, extend, core.now_ms)
    core.broker.sent(session, core.now_ms)
    assert core.receive(session) == ["+OK extend t 1"]
    core.pass_time(5.2)
    assert [line[:8] for line in core.receive(session)] == ['{"try":2']


def test_the_timeout_of_one_event_affects_no_other(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s prefetch=10 timeout=5s")
    core.publish("a")
    core.receive(session)
    core.pass_time(3)
    core.publish("b")
    core.receive(session)
    core.pass_time(2.2)
    assert [line[:8] for line in core.receive(session)] == ['{"try":2']
    assert core.type(session, "ack t b") == ["+OK ack t 1"]


def test_an_event_that_failed_all_tries_is_a_dead_letter_with_the_consumers_errors(core: Core) -> None:
    session = core.connect()
    core.type(session, "hello billing", "sub t as=s tries=3 timeout=5s")
    core.publish("a", priority=4)
    words = {"message": 'no "такой" user\nat all', "code": 404, "trace": "line 1\nline 2"}
    core.receive(session)
    core.type(session, f"nack t a {json.dumps(words)}")
    core.pass_time(5.2)
    core.receive(session)
    core.disconnect(session)
    (letter,) = read(core, "dead_letters")
    msg = letter["msg"]
    assert (letter["id"], msg["topic"], msg["offset"], msg["subscription"], msg["tries"]) == ("t@0", "t", 0, "s", 3)
    assert msg["event"] == read(core, "t")[0]
    assert [error["cause"] for error in msg["errors"]] == ["nack", "timeout", "disconnect"]
    assert {name: msg["errors"][0][name] for name in words} == words
    assert {error["client"] for error in msg["errors"]} == {"billing"}
    assert msg["first_at"] <= msg["last_at"] == core.now_ms


def test_causes_that_do_not_count_as_strikes_make_no_dead_letter(core: Core) -> None:
    core.type(core.connect(), "sub t as=s tries=1 strikes=nack")
    core.publish("a")
    for _ in range(5):
        session = core.connect()
        core.disconnect(session)
        session = core.connect()
        core.type(session, "sub t as=s")
        core.disconnect(session)
    assert read(core, "dead_letters") == []
    session = core.connect()
    core.broker.disconnect(core.broker.sessions[1], core.now_ms)
    core.type(session, "sub t as=s")
    core.type(session, "nack t a")
    assert len(read(core, "dead_letters")) == 1


def test_a_redrive_reaches_its_subscription_only_and_adds_to_the_history(core: Core) -> None:
    failing, fine = core.connect(), core.connect()
    core.type(failing, "sub t as=failing tries=1")
    core.type(fine, "sub t as=fine")
    core.publish("a")
    assert ids(core.receive(fine)) == ["a"]
    core.type(fine, "ack t a")
    core.receive(failing)
    core.type(failing, 'nack t a "first"')
    (dead,) = answer(core, failing, "dead topic=t")
    assert (dead["offset"], dead["subscription"], dead["tries"]) == (0, "failing", 1)
    reply, line = core.type(failing, "redrive t as=failing a")
    assert reply == "+OK redrive t 1"
    assert line.startswith('{"try":2,')
    assert core.receive(fine) == []
    assert answer(core, failing, "dead") == []
    core.type(failing, 'nack t a "second"')
    assert [error["message"] for error in read(core, "dead_letters")[1]["msg"]["errors"]] == ["first", "second"]


def test_a_redrive_keeps_its_rate(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s tries=1 prefetch=100")
    core.publish(*map(str, range(50)))
    core.receive(session)
    core.type(session, *(f"nack t @{n}" for n in range(50)))
    reply, *lines = core.type(session, "redrive t as=s all rate=20/s")
    assert reply == "+OK redrive t 50"
    assert len(lines) == 2
    core.pass_time(1)
    assert 18 <= len(core.receive(session)) <= 20
    core.pass_time(2)
    assert len(core.receive(session)) >= 28
    assert answer(core, session, "dead as=s") == []


def test_an_event_of_dead_letters_never_becomes_a_dead_letter(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s tries=1", "sub dead_letters as=watch tries=1")
    core.publish("a")
    core.receive(session)
    core.type(session, "nack t a")
    for _ in range(3):
        assert core.type(session, "nack dead_letters @0")[0] == "+OK nack dead_letters 1"
    assert len(read(core, "dead_letters")) == 1


def test_with_prefetch_1_an_event_of_high_priority_passes_ten_thousand_low_ones(core: Core) -> None:
    session = core.connect()
    core.publish(*map(str, range(100)))
    core.type(session, "sub t as=s from=earliest")
    core.publish("high", priority=9)
    assert ids(core.type(session, "ack t @0")) == ["high"]


def test_an_event_of_low_priority_is_delivered_within_max_wait_under_constant_load_of_high_priority(core: Core) -> None:
    session = core.connect()
    core.publish("low")
    core.publish("first", priority=9)
    (_, line) = core.type(session, "sub t as=s from=earliest max_wait=10s")
    began, event = core.now_ms, json.loads(line)
    while event["id"] != "low":
        core.publish(f"high-{core.now_ms}", priority=9)
        core.pass_time(0.5)
        _, line = core.type(session, f"ack t @{event['offset']}")
        event = json.loads(line)
    assert 10_000 <= core.now_ms - began <= 11_000


def test_events_of_a_backlog_older_than_max_wait_are_delivered_in_the_order_of_their_age(core: Core) -> None:
    for number in range(6):
        core.publish(str(number), priority=number % 2)
        core.pass_time(1)
    core.pass_time(60)
    core.publish("new", priority=9)
    session = core.connect()
    _, first = core.type(session, "sub t as=s from=earliest max_wait=30s")
    seen = [json.loads(first)]
    for _ in range(5):
        seen += map(json.loads, core.type(session, f"ack t @{seen[-1]['offset']}")[1:])
    assert [event["offset"] for event in seen] == [0, 1, 2, 3, 4, 5]


def test_shared_subscriptions_give_each_event_to_one_connection(core: Core) -> None:
    first, second = core.connect(), core.connect()
    core.type(first, "sub t as=s prefetch=2")
    core.type(second, "sub t as=s prefetch=2")
    core.publish(*"abcdef")
    got = ids(core.receive(first)), ids(core.receive(second))
    assert sorted(got[0] + got[1]) == ["a", "b", "c", "d"]
    assert len(got[0]) == len(got[1]) == 2


def test_a_subscription_without_a_name_ends_with_its_connection(core: Core) -> None:
    session = core.connect()
    (reply,) = core.type(session, "sub t")
    assert reply == f"+OK sub t as=conn-{session.number} from=0 pending=0 prefetch=1"
    core.disconnect(session)
    assert answer(core, core.connect(), "stats")["topics"]["t"]["subscriptions"] == {}


def test_an_id_of_several_events_in_flight_means_the_oldest(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s prefetch=5")
    core.publish("a", "a", "b")
    core.receive(session)
    core.type(session, "ack t a")
    assert list(core.broker.topics["t"].subscriptions["s"].consumers[0].in_flight) == [1, 2]


def test_acks_name_many_refs_and_count_the_settled_events(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s prefetch=9")
    core.publish(*"abcd")
    core.receive(session)
    assert core.type(session, "ack t @0 b @99 nothing") == ["+OK ack t 2"]
    assert core.type(session, "ack t @0") == ["-ERR stale none of these events is in flight on this connection"]
    assert core.type(session, "hello me quiet", "ack t @2 @3", "ping") == ["+OK hello me", "+PONG"]


def test_hello_resume_attaches_to_the_subscriptions_of_the_client(core: Core) -> None:
    session = core.connect()
    core.type(session, "hello worker", "sub t as=s prefetch=3")
    core.disconnect(session)
    core.restart()
    core.publish("a")
    reply, attached, event = core.type(core.connect(), "hello worker resume")
    assert (reply, attached) == ("+OK hello worker", "+OK sub t as=s from=0 pending=1 prefetch=3")
    assert ids([event]) == ["a"]


def test_a_later_sub_changes_only_the_given_options_of_the_policy_and_they_survive(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s tries=7 timeout=9s", "sub t as=s backoff=2s")
    core.restart()
    policy = core.broker.topics["t"].subscriptions["s"].policy
    assert (policy.tries, policy.timeout_ms, policy.backoff_ms) == (7, 9000, 2000)


def test_tries_and_their_errors_survive_a_restart(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s tries=3")
    core.publish("a")
    core.receive(session)
    core.type(session, 'nack t a "one"', 'nack t a "two"')
    core.restart()
    session = core.connect()
    assert core.type(session, "sub t as=s")[1].startswith('{"try":3,')
    core.type(session, 'nack t a "three"')
    assert [error["message"] for error in read(core, "dead_letters")[0]["msg"]["errors"]] == ["one", "two", "three"]


def test_a_subscription_begins_at_an_offset_or_a_time(core: Core) -> None:
    for id_ in "abc":
        core.publish(id_)
        core.pass_time(10)
    at = (core.now_ms - 20_000) / 1000
    assert ids(core.type(core.connect(), "sub t from=1 prefetch=9")) == ["b", "c"]
    assert ids(
        core.type(core.connect(), f"sub t from=1970-01-01T00:{int(at // 60):02d}:{int(at % 60):02d}Z prefetch=9")
    ) == ["b", "c"]
    assert ids(core.type(core.connect(), "sub t from=99 prefetch=9")) == []
    assert ids(core.type(core.connect(), "sub t from=2100-01-01 prefetch=9")) == []


def test_explain_reports_the_state_of_an_event(core: Core) -> None:
    session, teller = core.connect(), core.connect()
    core.type(session, "hello worker", "sub t as=s tries=1")
    core.publish(*"abcd")
    core.receive(session)
    assert answer(core, teller, "explain t a as=s") | {"peer": ""} == {
        "topic": "t",
        "offset": 0,
        "subscription": "s",
        "failed_tries": 0,
        "tries": 1,
        "errors": [],
        "state": "in_flight",
        "client": "worker",
        "peer": "",
    }
    waiting = answer(core, teller, "explain t @3 as=s")
    assert (waiting["state"], waiting["behind"]) == ("waiting", 2)
    assert "prefetch" in waiting["because"]
    core.type(session, "ack t a")
    core.type(session, "nack t b")
    assert answer(core, teller, "explain t a as=s")["state"] == "settled"
    assert answer(core, teller, "explain t b as=s")["state"] == "dead"
    core.disconnect(session)
    assert answer(core, teller, "explain t d as=s")["because"] == "no connection has this subscription"
    assert core.type(teller, "explain t z as=s")[0].startswith("-ERR no_event")
    assert core.type(teller, "explain t @9 as=s") == ["-ERR no_event t has the offsets 0 to 3"]


def test_a_backlog_shows_waiting_events_by_priority_and_the_clients_that_have_the_rest(core: Core) -> None:
    session = core.connect()
    core.type(session, "hello billing", "sub t as=s prefetch=2 backoff=1m")
    core.publish("a", "b", "c", priority=1)
    core.publish("d", "e", priority=6)
    core.type(session, "nack t @0")
    found = answer(core, session, "backlog t as=s")
    consumer = {"client": "billing", "peer": "test:1", "in_flight": 2, "prefetch": 2}
    assert found == {"by_priority": {"6": 1, "1": 2}, "oldest": 0, "consumers": [consumer]}
    assert (
        sum(found["by_priority"].values())
        == answer(core, session, "stats")["topics"]["t"]["subscriptions"]["s"]["pending"]
    )
    core.type(session, "ack t @1 @3", "ack t @2 @4")
    core.pass_time(61)
    core.type(session, "ack t @0")
    assert answer(core, session, "backlog t as=s")["oldest"] is None


def test_administrators_see_the_clients(core: Core) -> None:
    session, other = core.connect(), core.connect()
    core.type(session, "hello billing", "sub t as=s")
    core.publish("a")
    found = answer(core, other, "clients limit=1")
    assert found == [{"client": "billing", "peer": "test:1", "subscriptions": [["t", "s"]], "in_flight": 1}]
    other.access = Access("guest", ("*",), ("*",))
    assert core.type(other, "clients") == ["-ERR forbidden that is for administrators, and guest is not one"]


def test_refused_events_are_kept_up_to_a_bound(core: Core) -> None:
    session = core.connect()
    core.type(session, 'pub t {"id":"1","mgs":1}', "pub t {nonsense", "nonsense")
    kept = read(core, "rejected_lines")
    assert [(event["msg"]["code"], event["msg"]["line"]) for event in kept] == [
        ("bad_event", '{"id":"1","mgs":1}'),
        ("bad_json", "{nonsense"),
    ]
    for _ in range(300):
        core.type(session, "pub t {")
    assert len(read(core, "rejected_lines")) == 100


def test_a_failed_write_refuses_the_accepted_events_and_no_others(core: Core) -> None:
    session = core.connect()
    core.publish("a")
    core.hold = True
    assert core.type(session, 'pub t {"id":"b","msg":1}', "ping") == []
    core.fail_with, core.hold = "No space left on device", False
    core.carry_out()
    assert core.receive(session) == ["-ERR disk No space left on device", "+PONG"]
    core.fail_with = None
    assert core.type(session, 'pub t {"id":"c","msg":1}') == ["+OK pub t 1 synced"]
    assert [event["id"] for event in read(core, "t")] == ["a", "c"]


def test_a_sequence_that_could_not_be_stored_may_be_sent_again(core: Core) -> None:
    session = core.connect()
    line = 'pub t {"id":"a","msg":1,"producer":"p","sequence":5}'
    core.fail_with = "Input/output error"
    assert core.type(session, line) == ["-ERR disk Input/output error"]
    core.fail_with = None
    assert core.type(session, line, line) == ["+OK pub t 0 synced", "+OK dup t 0"]


def test_an_event_after_a_sequence_that_could_not_be_stored_waits_for_it(core: Core) -> None:
    session = core.connect()

    def line(sequence: int) -> str:
        return f'pub t {{"id":"{sequence}","msg":1,"producer":"p","sequence":{sequence}}}'

    core.type(session, line(4))
    core.fail_with = "No space left on device"
    assert core.type(session, line(5), line(6)) == ["-ERR disk No space left on device"] * 2
    core.fail_with = None
    refused = "-ERR out_of_sequence p must send 5 again, which was not stored, or give it up: skip t p 5"
    assert core.type(session, line(7), line(8)) == [refused] * 2
    assert core.type(session, line(4), line(5), line(6), line(7)) == ["+OK dup t 0", "+OK pub t 1-3 synced"]


def test_a_repeated_event_is_answered_only_when_the_first_is_stored(core: Core) -> None:
    session = core.connect()
    line = 'pub t {"id":"a","msg":1,"producer":"p","sequence":5}'
    core.hold = True
    assert core.type(session, line, line) == []
    core.hold = False
    core.carry_out()
    assert core.receive(session) == ["+OK pub t 0 synced", "+OK dup t 0"]


def test_producers_and_checkpoints_survive_a_restart(core: Core) -> None:
    session = core.connect()
    core.type(session, 'pub t {"id":"a","msg":1,"producer":"p","sequence":5,"checkpoint":"one"}')
    assert answer(core, session, "last t p") == {"offset": 0, "sequence": 5, "checkpoint": "one"}
    assert core.type(session, "checkpoint t p two words") == ["+OK checkpoint t p"]
    for is_folded in (False, True):
        core.restart(is_folded=is_folded)
        session = core.connect()
        assert answer(core, session, "last t p") == {"offset": 0, "sequence": 5, "checkpoint": "two words"}
        assert core.type(session, 'pub t {"id":"a","msg":1,"producer":"p","sequence":5}') == ["+OK dup t 0"]
    assert core.type(session, "last t nobody") == ["+OK last t nobody null"]


def test_a_drain_returns_events_without_a_failed_try(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s")
    core.publish("a")
    core.receive(session)
    core.broker.begin_drain()
    core.disconnect(session)
    core.restart(is_folded=True)
    assert core.type(core.connect(), "sub t as=s")[1].startswith('{"topic":"t","offset":0,')


def test_a_client_that_reads_nothing_has_a_bounded_outbox(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s prefetch=100000")
    text = "x" * 10_000
    publisher = core.connect()
    for _ in range(500):
        core.type(publisher, f'pub t {{"id":"1","msg":"{text}"}}')
    assert session.outbox.size < 3 << 20
    assert len(core.receive(session)) == 500


def test_lanes_forget_offsets_that_all_subscriptions_have_passed_and_read_them_again_from_the_index(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s prefetch=100000")
    publisher = core.connect()
    lines = [f'pub t {{"id":"{n}","priority":{n % 3},"msg":1}}' for n in range(20_000)]
    core.type(publisher, *lines)
    core.receive(session)
    core.pass_time(1)
    lanes = core.broker.topics["t"].lanes
    assert sum(lane.end - lane.trimmed for lane in lanes.by_priority.values()) < 5000
    other = core.connect()
    seen = [json.loads(line)["offset"] for line in core.type(other, "sub t from=5 prefetch=100000 max_wait=0s")[1:]]
    assert seen == sorted(range(5, 20_000), key=lambda n: (-(n % 3), n))


def test_a_state_newer_than_the_log_is_clamped_and_new_events_are_delivered(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s")
    core.publish("a", "b")
    core.type(session, "ack t a")
    core.kept = core.broker.records()
    core.logs.by_topic.clear()
    core.logs.open("t")
    core.restart()
    core.publish("new")
    assert ids(core.type(core.connect(), "sub t as=s")) == ["new"]


def test_a_subscription_that_ends_with_its_connection_leaves_no_timers(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t tries=1 timeout=1s")
    core.publish("a")
    core.receive(session)
    core.disconnect(session)
    session = core.connect()
    core.type(session, "sub t as=s from=earliest tries=1 timeout=1s", "unsub t as=s end")
    core.pass_time(5)
    assert read(core, "dead_letters") == []


def test_the_history_of_an_event_is_bounded(core: Core) -> None:
    session = core.connect()
    core.type(session, "sub t as=s tries=100")
    core.publish("a")
    core.receive(session)
    for _ in range(50):
        core.type(session, "nack t a " + json.dumps("x" * 16_000))
    attempts = core.broker.topics["t"].subscriptions["s"].attempts[0]
    assert attempts.count == 50
    assert sum(error.size for error in attempts.errors) <= 64 << 10
    core.restart()
    assert core.broker.topics["t"].subscriptions["s"].attempts[0] == attempts


def test_quit_returns_events_in_flight_without_counting_a_try(core: Core) -> None:
    session = core.connect()
    core.type(session, "hello me", "sub t as=s")
    core.publish("a")
    core.receive(session)
    assert core.type(session, "quit") == ["+OK bye"]
    core.disconnect(session)
    assert core.type(core.connect(), "sub t as=s")[1].startswith('{"topic":"t","offset":0,')
    assert core.type(core.connect(), "hello me resume")[1].startswith("+OK sub t as=s")


def test_each_publish_of_a_run_that_is_refused_as_a_whole_has_its_reply() -> None:
    core = Core("t")
    session = core.connect()
    core.broker.reserve_topic("t", core.connect())
    lines = [f'pub t {{"id":"{n}","msg":{n}}}' for n in range(3)]
    assert [line.split(" ")[1] for line in core.type(session, *lines, "ping")[:3]] == ["forbidden"] * 3
    assert core.receive(session) == []
    assert core.type(session, "ping") == ["+PONG"]


def test_a_stored_event_is_confirmed_after_a_refused_neighbour() -> None:
    core = Core("slow", "t")
    one, other = core.connect(), core.connect()
    core.hold = True
    core.type(one, 'pub slow {"id":"s","msg":1}', 'pub t {"id":"lost","msg":1}')
    topic = core.broker.topics["t"]
    topic.begin_write()
    core.broker.not_committed(topic, "No space left on device", core.now_ms)
    core.type(other, 'pub t {"id":"a","msg":1}')
    core._write("t")
    core.type(one, 'pub t {"id":"b","msg":1}')
    core._write("t")
    core._write("slow")
    assert core.receive(one) == [
        "+OK pub slow 0 synced",
        "-ERR disk No space left on device",
        "+OK pub t 1 synced",
    ]
    assert ids(core.type(other, "read t earliest")) == ["a", "b"]


def test_the_end_of_a_subscription_keeps_the_prefetch_of_an_absent_client() -> None:
    core = Core("t", "u")
    session, other = core.connect(), core.connect()
    core.type(session, "hello c", "sub t as=s prefetch=6000", "sub u as=x prefetch=10")
    for _ in range(6):
        core.type(other, *['pub t {"id":"e","msg":1}'] * 1000)
    core.receive(session)
    core.disconnect(session)
    assert core.type(other, "unsub t as=s end") == ["+OK unsub t"]
    core.pass_time(1)
    core.type(other, 'pub u {"id":"a","msg":1}')
    assert ids(core.type(core.connect(), "hello c resume")) == ["a"]


def test_the_failed_tries_of_a_settled_event_are_not_restored_by_a_restart() -> None:
    core = Core("t")
    core.publish("high", priority=1)
    core.publish("a", "b", "c")
    session = core.connect()
    core.type(session, "sub t as=s from=earliest prefetch=10")
    core.type(session, "nack t a", "nack t b", "nack t high", "ack t a")
    core.type(session, "ack t high c")
    assert core.broker.topics["t"].subscriptions["s"].attempts.keys() == {2}
    for is_folded in (False, True):
        core.restart(is_folded=is_folded)
        assert core.broker.topics["t"].subscriptions["s"].attempts.keys() == {2}
