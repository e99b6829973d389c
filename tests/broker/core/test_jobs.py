"""Long commands run in steps: reports, chains and searches by id, between other clients' commands and in order."""

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.connection import Limits
from broker.core.steps import Interrupt, Interrupted, Steps
from broker.core.topic.topic import Topic
from broker.core.verbs import figures as figures_module
from broker.core.verbs.chain_index import KnownEvent
from broker.core.verbs.chains import _Parents
from broker.core.verbs.search import Search
from broker.server import Server
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tweetwire import Client, Event, SyncClient
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs.reporting import Stats


def ids(count: int, first: int = 0) -> list[str]:
    return [f"e{number}" for number in range(first, first + count)]


def body(reply: str, words: int) -> Any:
    return json.loads(reply.split(" ", words)[words])


# Reports


def test_replies_keep_the_order_of_commands_whose_reports_take_steps() -> None:
    core = Core("t")
    session = core.connect()
    lines = ("stats", "ping", "topics", 'pub t {"id":"1","msg":1}', "dead", "help ping", "stats t", "clients", "stats")
    replies = core.type(session, *lines)
    starts = [
        "+OK stats {",
        "+PONG",
        "+OK topics [",
        "+OK pub t 0",
        "+OK dead [",
        "+OK help",
        "+OK stats {",
        "+OK clients [",
    ]
    assert [reply.startswith(start) for reply, start in zip(replies, [*starts, "+OK stats {"], strict=True)] == [
        True
    ] * 9


def test_stats_of_a_topic_has_the_form_of_stats_and_shows_only_that_topic() -> None:
    core = Core("t", "u")
    session = core.connect()
    core.type(session, "sub t as=s", 'pub t {"id":"1","msg":1}')
    (one,), (all_,) = core.type(session, "stats t"), core.type(session, "stats")
    assert list(body(one, 2)["topics"]) == ["t"]
    assert body(one, 2)["topics"]["t"] == body(all_, 2)["topics"]["t"]
    assert body(one, 2).keys() == body(all_, 2).keys()
    assert core.type(session, "stats nowhere", "stats .t")[0] == "-ERR unknown_topic there is no topic nowhere"


@pytest.mark.anyio
async def test_many_requests_for_stats_in_one_tick_share_one_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    part = figures_module._figures_part

    def counted(topic: Topic) -> Steps[bytes]:
        made.append(topic.name)
        return part(topic)

    monkeypatch.setattr(figures_module, "_figures_part", counted)
    server = Server(tmp_path / "b", "memory", limits=Limits(1 << 20, 1 << 20, 30.0))
    async with server.open(["t"]):
        sessions = [server.admit(f"client{n}", lambda: None) for n in range(50)]
        for session in sessions:
            server.broker.execute(session, Stats(), server.now_ms())
        server.do_work()
        with anyio.fail_after(30):
            while any(session.outbox.is_waiting for session in sessions):
                await anyio.sleep(0.01)
        assert {session.take_output()[:10] for session in sessions} == {b"+OK stats "}
        # The first report is made immediately. The other clients wait for the next tick and share one report.
        assert made.count("t") <= 2
        for session in sessions:
            server.dismiss(session)


@pytest.mark.anyio
async def test_clients_ask_for_the_figures_of_one_topic(broker: BrokerProcess) -> None:
    async with Client(broker.address) as client:
        await client.publish("t", Event(id="1", msg=1))
        assert (await client.stats("t"))["topics"].keys() == {"t"}
        with pytest.raises(Refusal, match="unknown_topic"):
            await client.stats("nowhere")
    with SyncClient(broker.address) as sync_client:
        assert sync_client.stats("t")["topics"]["t"]["next"] == 1


def test_pipelined_stats_are_all_answered_in_order(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), 30) as connection, connection.makefile("rb") as lines:
        lines.readline()
        connection.sendall(b"stats\nping\n" * 500)
        for _ in range(500):
            assert lines.readline().startswith(b"+OK stats {")
            assert lines.readline() == b"+PONG\n"


# Searches by id


@pytest.mark.parametrize("ref", ["e7", "@7"])
def test_an_event_is_explained_by_its_id_after_a_restart_and_beyond_the_memory_of_recent_lines(ref: str) -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, "sub t as=s")
    core.disconnect(session)
    core.publish(*ids(5000))
    core.restart()
    assert core.broker.topics["t"].recent.size == 0
    (reply,) = core.type(core.connect(), f"explain t {ref} as=s")
    assert reply.startswith("+OK explain t @7 ")
    assert body(reply, 4)["state"] == "waiting"


def test_an_id_means_an_event_in_flight_else_a_dead_one_else_the_newest() -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, "sub t as=s tries=1 prefetch=1")
    core.type(core.connect(), *['pub t {"id":"same","msg":1}'] * 3)
    core.receive(session)
    assert core.type(session, "explain t same as=s")[0].startswith("+OK explain t @0 ")
    core.type(session, "nack t @0")
    core.receive(session)
    assert core.type(session, "explain t same as=s")[0].startswith("+OK explain t @1 ")
    core.type(session, "ack t @1")
    core.receive(session)
    core.type(session, "unsub t as=s")
    assert core.type(session, "explain t same as=s")[0].startswith("+OK explain t @0 ")
    core.type(session, "redrive t as=s same")
    core.type(session, "sub t as=s prefetch=10", "ack t @0 @1 @2")
    assert core.type(session, "explain t same as=s")[0].startswith("+OK explain t @2 ")


def test_ids_of_many_events_in_flight_are_learnt_once_and_each_settles_its_event() -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, "sub t as=s prefetch=100000")
    core.publish(*ids(3000))
    core.receive(session)
    assert core.type(session, "ack t e2999 e0", "ack t e0", "ack t nobody", "nack t e1500", "ping")[:3] == [
        "+OK ack t 2",
        "-ERR stale none of these events is in flight on this connection",
        "-ERR stale none of these events is in flight on this connection",
    ]
    assert core.broker.topics["t"].subscriptions["s"].settled == 2


def test_many_events_of_one_id_are_settled_one_by_one_the_oldest_first() -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, "sub t as=s prefetch=100000")
    core.type(core.connect(), *['pub t {"id":"same","msg":1}'] * 20_000)
    core.receive(session)
    began = time.process_time()
    core.type(session, *["ack t same"] * 20_000)
    # If each lookup scanned all events, this would take 20 s.
    assert time.process_time() - began < 5
    assert core.broker.topics["t"].subscriptions["s"].settled == 20_000


def test_dead_events_are_redriven_by_their_ids_after_a_restart_and_an_unknown_one_is_refused() -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, "sub t as=s tries=1 prefetch=100")
    core.publish(*ids(10))
    core.receive(session)
    for number in range(10):
        core.type(session, f"nack t @{number}")
    core.restart()
    session = core.connect()
    assert core.type(session, "redrive t as=s e3 nobody") == ["-ERR no_event nobody is not a dead event of s"]
    assert core.type(session, "redrive t as=s e3 @4 e3") == ["+OK redrive t 2"]
    assert len(core.broker.topics["t"].subscriptions["s"].dead) == 8


def test_a_search_ends_at_the_stated_number_of_events_and_when_its_client_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = Core("t")
    core.publish(*ids(3000))
    topic = core.broker.topics["t"]
    assert Search(topic, "e5").run(Interrupt()) == 5
    monkeypatch.setattr("broker.core.verbs.search.SEARCHED_MAX", 2000)
    with pytest.raises(Refusal, match="none of the newest 2,000 events of t has the id e5; name an older one"):
        Search(topic, "e5").run(Interrupt())
    interrupt = Interrupt()
    interrupt.ask()
    with pytest.raises(Interrupted):
        Search(topic, "nobody").run(interrupt)


@pytest.mark.parametrize("verb", ["chain t nobody", "explain t nobody as=s"])
def test_sigterm_does_not_wait_for_searches(tmp_path: Path, verb: str) -> None:
    with BrokerProcess(tmp_path / "b") as broker, SyncClient(broker.address) as client:
        client.publish_many("t", (Event(id=str(n), msg="x") for n in range(100_000)))
        with socket.create_connection(("127.0.0.1", broker.port), 30) as connection, connection.makefile("rb") as lines:
            lines.readline()
            connection.sendall(b"sub t as=s\n" + f"{verb}\n".encode() * 2000 + b"ping\n")
            assert lines.readline().startswith(b"+OK sub")
            assert lines.readline().startswith(b"-ERR no_event ")
            os.kill(broker.pid, signal.SIGTERM)
            replies = [line for line in lines if not line.startswith(b"-ERR no_event ")]
        assert broker.wait(4) == 0
        # The connection may be closed before all commands were carried out.
        assert {line for line in replies if b"shutting_down" not in line} <= {b"+PONG\n"}


# Chains


def slow_parent(events: list[KnownEvent], child: KnownEvent) -> KnownEvent | None:
    older = (one for one in events if one.timestamp <= child.timestamp and one != child)
    return max(older, key=lambda one: (one.timestamp, one.topic == child.topic, one.offset), default=None)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=12),
    st.integers(0, 4),
    st.sampled_from("abcd"),
)
def test_the_parent_of_an_event_is_the_one_that_a_plain_search_finds(
    places: list[tuple[int, str]], at: int, topic: str
) -> None:
    events = [KnownEvent(timestamp, name, offset, "id", None) for offset, (timestamp, name) in enumerate(places)]
    parents = _Parents(events)
    for child in [*events, KnownEvent(at, topic, 99, "child", "id")]:
        assert parents.of(child) == slow_parent(events, child)


def test_a_chain_of_events_that_share_one_id_takes_no_time() -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, *['pub t {"id":"a","parent":"a","msg":1}'] * 2000)
    began = time.process_time()
    (reply,) = core.type(session, "chain t a limit=100000")
    # With one lookup for each event, 500 events would take 14 s.
    assert time.process_time() - began < 5
    assert len(body(reply, 3)["events"]) == 2000


def test_ids_are_learnt_again_after_a_disk_error(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, "sub t as=s prefetch=2000")
    for first in (0, 1000):
        core.publish(*ids(1000, first))
    core.receive(session)

    def fail(*_: Any) -> Any:
        raise Refusal("disk", "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(core.logs.by_topic["t"], "pick", fail)
        assert core.type(session, "ack t e5") == ["-ERR disk I/O error"]
    assert core.type(session, "ack t e5") == ["+OK ack t 1"]
