"""Consumers that promise to ``begin`` their events: when a client dies, only the events that it had begun have a failed try."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core import Fetch, Session
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tweetwire import Client, Event, SyncClient
from tweetwire.protocol import parse_lines
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import decode_stored

PROMISE = "sub t as=s prefetch=100 begins timeout=10s"


@pytest.fixture
def core() -> Core:
    core = Core("t")
    core.type(core.connect(), "sub t as=s from=earliest tries=3")
    core.type(core.connect(), *(f'pub t {{"id":"{id_}","msg":1}}' for id_ in "abcde"))
    return core


def events(lines: list[str]) -> list[tuple[str, int]]:
    """Return the delivered events with their tries."""
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [(event["id"], event.get("try", 1)) for event in found]


def taking(core: Core, line: str = PROMISE) -> Session:
    """Return a connection that has all five events in flight."""
    for session in list(core.broker.sessions.values()):
        core.disconnect(session)
    session = core.connect()
    assert len(events(core.type(session, line))) == 5
    return session


def strikes(core: Core) -> dict[int, int]:
    """Return the strikes of events by their offset."""
    attempts = core.broker.topics["t"].subscriptions["s"].attempts
    return {offset: tries.strikes for offset, tries in attempts.items()}


def letters(core: Core) -> list[dict[str, Any]]:
    lines = core.type(core.connect(), "read dead_letters earliest")
    return [json.loads(line)["msg"] for line in lines if line.startswith("{")]


def wait(core: Core, session: Session, seconds: int) -> list[tuple[str, int]]:
    """Advance the time while a client reads. Return the events delivered to it."""
    given: list[tuple[str, int]] = []
    for _ in range(seconds):
        core.pass_time(1)
        given += events(core.receive(session))
    return given


@pytest.fixture
def fresh(core: Core) -> Core:
    """Return the five events without a failed try."""
    for session in list(core.broker.sessions.values()):
        core.type(session, "quit")
        core.disconnect(session)
    assert strikes(core) == {}
    return core


def test_a_lost_connection_is_a_failed_try_of_begun_events_only(fresh: Core) -> None:
    session = taking(fresh)
    assert fresh.type(session, "begin t @0 b") == ["+OK begin t 2"]
    assert fresh.type(session, "ack t @0") == ["+OK ack t 1"]
    fresh.disconnect(session)
    assert strikes(fresh) == {1: 1}
    assert events(fresh.type(fresh.connect(), PROMISE)) == [("b", 2), ("c", 1), ("d", 1), ("e", 1)]


def test_without_the_promise_a_lost_connection_is_a_failed_try_of_all(fresh: Core) -> None:
    session = taking(fresh, "sub t as=s prefetch=100")
    assert fresh.type(session, "begin t @0") == [
        "-ERR bad_arguments begin is for subscriptions made with begins: sub t ... begins"
    ]
    fresh.disconnect(session)
    assert strikes(fresh) == dict.fromkeys(range(5), 1)


def test_a_consumer_that_dies_on_receipt_ends_in_dead_letters_and_not_in_a_loop(fresh: Core) -> None:
    lost = 0
    while letters(fresh) == []:
        fresh.disconnect(taking(fresh))
        lost += 1
    assert lost == 4, "the first loss is no strike, since it may have been any event's"
    assert [(letter["event"]["id"], letter["tries"]) for letter in letters(fresh)] == [("a", 3)]
    assert strikes(fresh) == {0: 3}
    assert events(fresh.type(fresh.connect(), PROMISE)) == [("b", 1), ("c", 1), ("d", 1), ("e", 1)]


def test_after_a_begin_the_arrival_of_an_event_is_not_suspected_of_ending_its_client(fresh: Core) -> None:
    for _ in range(20):
        fresh.disconnect(taking(fresh))
        session = taking(fresh)
        fresh.type(session, "begin t @0")
        fresh.type(session, "quit")
    assert strikes(fresh) == {}


def test_events_of_a_lost_client_are_delivered_again_as_suspects_until_they_are_settled(fresh: Core) -> None:
    session = taking(fresh)
    fresh.type(session, "begin t @1", "ack t @0")
    fresh.disconnect(session)
    again = fresh.connect()
    lines = [line for line in fresh.type(again, PROMISE) if line.startswith("{")]
    assert [line.startswith('{"suspect":true,') for line in lines] == [True] * 4
    assert lines[0].startswith('{"suspect":true,"try":2,"topic":"t","offset":1,')
    assert [decode_stored(line.encode()).is_suspect for line in lines] == [True] * 4
    fresh.type(again, "begin t @1", "ack t @1 @2 @3 @4", "unsub t as=s")
    fresh.type(again, 'pub t {"id":"f","msg":1}')
    assert not any("suspect" in line for line in fresh.type(again, PROMISE))


def test_a_consumer_without_the_promise_sees_no_suspects(fresh: Core) -> None:
    fresh.disconnect(taking(fresh))
    session = fresh.connect()
    assert not any("suspect" in line for line in fresh.type(session, "sub t as=s prefetch=100"))


def test_a_poisonous_event_is_found_among_many_and_no_other_has_a_strike(fresh: Core) -> None:
    """The client begins suspects one at a time and handles events in order. Event d ends it before it has sent its acks."""
    crashes = 0
    while not letters(fresh):
        session = fresh.connect()
        handled: list[str] = []
        for line in fresh.type(session, PROMISE):
            if not line.startswith("{"):
                continue
            event = decode_stored(line.encode())
            if event.is_suspect:
                fresh.type(session, *handled, f"begin t @{event.offset}")
                handled = []
            if event.id == "d":
                break
            handled.append(f"ack t @{event.offset}")
        fresh.disconnect(session)
        crashes += 1
    assert crashes == 1 + 3
    assert [(letter["event"]["id"], letter["tries"]) for letter in letters(fresh)] == [("d", 3)]
    assert set(strikes(fresh)) == {3}


def test_the_timer_counts_from_the_begin(fresh: Core) -> None:
    session = taking(fresh)
    for second in range(4):
        fresh.type(session, f"begin t @{second}")
        fresh.pass_time(9)
        assert fresh.type(session, f"ack t @{second}") == ["+OK ack t 1"], (
            "36 s after its delivery, 9 s after its begin"
        )
    fresh.type(session, "begin t @4")
    fresh.pass_time(11)
    assert strikes(fresh) == {4: 1}


def test_an_event_after_a_begun_event_that_times_out_counts_no_failed_try(fresh: Core) -> None:
    session = taking(fresh)
    fresh.type(session, "begin t @0")
    fresh.pass_time(60)
    assert strikes(fresh)[0] == 1
    assert set(strikes(fresh)) <= {0, 1}


def test_a_consumer_that_begins_nothing_for_the_timeout_gives_its_events_to_another(fresh: Core) -> None:
    silent = taking(fresh)
    other = fresh.connect()
    fresh.type(other, "sub t as=s prefetch=3 begins")
    fresh.pass_time(9)
    assert fresh.receive(other) == []
    fresh.pass_time(2)
    assert len(events(fresh.receive(other))) == 3
    assert strikes(fresh) == {}
    assert fresh.broker.topics["t"].subscriptions["s"].in_flight == 5
    assert len(events(fresh.receive(silent))) == 2


def test_a_consumer_that_never_begins_ends_in_dead_letters_one_event_at_a_time(fresh: Core) -> None:
    session = taking(fresh)
    wait(fresh, session, 45)
    assert [letter["event"]["id"] for letter in letters(fresh)] == ["a"]
    assert {error["cause"] for error in letters(fresh)[0]["errors"]} == {"timeout"}
    assert set(strikes(fresh)) == {0}
    fresh.type(session, "begin t @1")
    assert fresh.type(session, "ack t @1") == ["+OK ack t 1"]


def test_a_consumer_that_acks_events_without_begin_keeps_its_events(fresh: Core) -> None:
    session = taking(fresh)
    for offset in range(5):
        fresh.pass_time(9)
        assert fresh.type(session, f"ack t @{offset}") == ["+OK ack t 1"]
    assert strikes(fresh) == {}


def test_a_busy_client_loses_an_event_that_it_never_begins(fresh: Core) -> None:
    session = taking(fresh)
    fresh.type(session, "ack t @1 @2 @3 @4")
    suspects = fresh.broker.topics["t"].subscriptions["s"].suspects
    for number in range(9):
        assert number > 6 or 0 not in suspects, "it may have 60 s: ten for itself and for each of five before it"
        wait(fresh, session, 9)
        fresh.type(session, f'pub t {{"id":"n{number}","msg":1}}')
        fresh.type(session, f"ack t @{5 + number}")
    assert 0 in suspects
    assert strikes(fresh) == {}


def test_new_events_after_a_long_pause_have_the_whole_timeout(fresh: Core) -> None:
    session = taking(fresh)
    fresh.type(session, "ack t @0 @1 @2 @3 @4")
    fresh.pass_time(9.5)
    assert len(events(fresh.type(session, 'pub t {"id":"f","msg":1}'))) == 1
    fresh.pass_time(9)
    assert fresh.type(session, "begin t f") == ["+OK begin t 1"]


def test_extend_begins_an_event_that_was_not_begun(fresh: Core) -> None:
    session = taking(fresh)
    fresh.type(session, "extend t @3")
    fresh.disconnect(session)
    assert strikes(fresh) == {3: 1}


def test_a_repeated_begin_changes_nothing_and_a_begin_without_an_event_in_flight_is_stale(fresh: Core) -> None:
    session = taking(fresh)
    fresh.type(session, "begin t @0")
    fresh.pass_time(6)
    assert fresh.type(session, "begin t @0 @1") == ["+OK begin t 2"]
    wait(fresh, session, 5)
    assert strikes(fresh) == {0: 1}
    assert fresh.type(session, "begin t @77") == ["-ERR stale none of these events is in flight on this connection"]


def test_hello_quiet_drops_the_replies_to_begin(fresh: Core) -> None:
    session = taking(fresh)
    fresh.type(session, "hello me quiet")
    assert fresh.type(session, "begin t @0", "begin t @99", "ping") == [
        "-ERR stale none of these events is in flight on this connection",
        "+PONG",
    ]


def test_a_promise_that_comes_too_late_is_refused_and_changes_nothing(fresh: Core) -> None:
    session = taking(fresh, "sub t as=s prefetch=100")
    refused = "-ERR bad_arguments begins comes too late for the events in flight here; unsub first"
    assert fresh.type(session, "sub t as=s prefetch=7 tries=9 begins") == [refused]
    assert fresh.broker.topics["t"].subscriptions["s"].policy.tries == 3
    fresh.type(session, "ack t @0 @1 @2 @3 @4")
    assert fresh.type(session, "sub t as=s prefetch=7 begins")[0].startswith("+OK sub t")
    assert fresh.type(session, "begin t @0")[0].startswith("-ERR stale")


def test_the_promise_stays_if_the_connection_subscribes_again_without_begins(fresh: Core) -> None:
    session = taking(fresh)
    fresh.type(session, "sub t as=s prefetch=7")
    fresh.type(session, "begin t @0")
    fresh.disconnect(session)
    assert strikes(fresh) == {0: 1}


def test_events_that_were_never_sent_to_a_lost_consumer_are_not_suspects(fresh: Core) -> None:
    for _ in range(10):
        session = fresh.connect()
        (promise,) = parse_lines([PROMISE.encode()], 100)
        assert not isinstance(promise, Refusal)
        fresh.broker.execute(session, promise, fresh.now_ms)
        fresh.carry_out()
        assert fresh.broker.topics["t"].subscriptions["s"].in_flight == 5
        fresh.disconnect(session)
    assert strikes(fresh) == {}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["begin", "ack", "nack", "extend", "lose", "quit", "wait"]), st.integers(0, 4)),
        max_size=40,
    )
)
def test_only_events_begun_or_nacked_or_first_in_two_losses_have_strikes(steps: list[tuple[str, int]]) -> None:
    core = Core("t")
    core.type(core.connect(), *(f'pub t {{"id":"{id_}","msg":1}}' for id_ in "abcde"))
    session = core.connect()
    core.type(session, f"{PROMISE} from=earliest tries=1000")
    touched: set[int] = set()
    losses = waits = 0
    for step, offset in steps:
        if step in {"begin", "nack", "extend"}:
            if core.type(session, f"{step} t @{offset}")[0].startswith("+OK"):
                touched.add(offset)
        elif step == "ack":
            core.type(session, f"ack t @{offset}")
        elif step == "wait":
            core.pass_time(4)
            core.receive(session)
            waits += 1
        else:
            if step == "quit":
                core.type(session, "quit")
            core.disconnect(session)
            losses += 1
            session = core.connect()
            core.type(session, PROMISE)
    struck = {offset for offset, count in strikes(core).items() if count}
    # A client that is silent for 10 s loses its events, too; that is longer than two waits.
    assert len(struck - touched) <= (losses + waits // 2) // 2
    subscription = core.broker.topics["t"].subscriptions["s"]
    assert subscription.settled + subscription.in_flight + subscription.waiting == 5


@pytest.mark.anyio
async def test_both_clients_begin_suspects(shared_broker: BrokerProcess, topic: str) -> None:
    options: Any = {"as_": "s", "from_": "earliest", "prefetch": 10, "begins": True, "create": True}
    async with Client(shared_broker.address, name="async") as client:
        for number in range(3):
            await client.publish(topic, Event(id=str(number), msg=1))
        await lose(shared_broker, topic)
        subscription = await client.subscribe(topic, **options)
        events = await anext(subscription)
        assert [event.is_suspect for event in events] == [True] * 3
        await subscription.mark_begun(events[:1])
        await subscription.ack(events[:1])
        await client.ping()
        assert subscription.stale == 0
        await client.unsubscribe(subscription)
    with SyncClient(shared_broker.address) as blocking:
        taken = blocking.subscribe(topic, **options)
        found = taken.take(10)
        assert [event.is_suspect for event in found] == [True] * 2
        taken.mark_begun(found)
        taken.mark_begun(events)
        assert taken.stale == 1
        taken.ack(found)


async def lose(broker: BrokerProcess, topic: str) -> None:
    """End the connection of a consumer that has all events in flight."""
    async with await anyio.connect_tcp("127.0.0.1", broker.port) as stream:
        await stream.send(f"sub {topic} as=s from=earliest prefetch=10 begins\n".encode())
        received = b""
        while received.count(b"\n{") < 3:
            received += await stream.receive()


def test_a_consumer_keeps_its_first_batch_while_the_next_one_is_read(core: Core) -> None:
    core.type(core.connect(), *(f'pub t {{"id":"{i}","msg":"{"x" * 500}"}}' for i in range(6000)))
    session = core.connect()
    for command in parse_lines([b"sub t as=new prefetch=3000 from=earliest begins timeout=30s"], 1 << 20):
        assert not isinstance(command, Refusal)
        core.broker.execute(session, command, core.now_ms)
    (fetch,) = core.broker.work.take_tasks()
    assert isinstance(fetch, Fetch)
    core.broker.fetched(fetch, core.broker.topics["t"].read_lines(fetch.offsets), core.now_ms)
    session.take_output()
    core.broker.sent(session, core.now_ms)
    consumer = session.consumers["t", "new"]
    assert consumer.fetching
    assert consumer.promise is not None
    first = list(consumer.promise.unbegun)
    assert first
    core.pass_time(0.3)
    assert list(consumer.promise.unbegun)[: len(first)] == first
    assert not consumer.subscription.suspects
