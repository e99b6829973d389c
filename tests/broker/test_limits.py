"""Misbehaving clients: the memory of the broker stays bounded, and no event is lost."""

import os
import random
import resource
import signal
import socket
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketListener

from broker.connection import Limits
from broker.server import Server
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Client, Event, SyncClient

pytestmark = pytest.mark.anyio


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def standing(client: SyncClient) -> dict[str, int]:
    """Return the figures of the subscription s of the topic t."""
    found: dict[str, int] = client.stats()["topics"]["t"]["subscriptions"]["s"]
    return found


def test_ten_thousand_random_disconnects_leave_no_orphan() -> None:
    dice = random.Random(7)
    core = Core("t")
    publisher = core.connect()
    core.type(publisher, *(f'pub t {{"id":"{n}","priority":{n % 4},"msg":{n}}}' for n in range(500)))
    core.type(core.connect(), "sub t as=s from=earliest strikes=none")
    sessions = []
    for _ in range(10_000):
        session = core.connect()
        core.type(session, f"sub t as=s prefetch={dice.randint(1, 50)}")
        sessions.append(session)
        if len(sessions) > dice.randint(1, 5):
            core.disconnect(sessions.pop(dice.randrange(len(sessions))))
    subscription = core.broker.topics["t"].subscriptions["s"]
    held = [offset for consumer in subscription.consumers for offset in consumer.in_flight]
    assert len(held) == len(set(held))
    assert len(held) + subscription.waiting == 500
    assert len(subscription.consumers) == len(sessions) + 1


def test_an_event_in_flight_costs_less_than_200_bytes_and_one_that_waits_next_to_nothing() -> None:
    core = Core("t")
    publisher, count = core.connect(), 100_000
    for first in range(0, count, 1000):
        core.type(publisher, *(f'pub t {{"id":"{n}","priority":{n % 4},"msg":1}}' for n in range(first, first + 1000)))
    session = core.connect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    core.type(session, "sub t as=s from=earliest prefetch=1")
    waiting = (tracemalloc.get_traced_memory()[0] - before) / count
    core.type(session, f"sub t as=s prefetch={count}")
    in_flight = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    assert core.broker.topics["t"].subscriptions["s"].in_flight == count
    assert waiting < 20
    assert in_flight < 200


@pytest.fixture
def small(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that keeps few lines in memory."""
    with BrokerProcess(tmp_path / "small", "--recent-bytes", "16MiB") as process:
        yield process


def test_a_reader_that_stops_costs_little_and_slows_no_other_client(small: BrokerProcess) -> None:
    """The reader stops reading while more is published than the broker keeps in memory. Then it receives all events."""
    broker = small
    text, count = "x" * 1000, 100_000
    with SyncClient(broker.address) as publisher, socket.create_connection(("127.0.0.1", broker.port), 30) as reader:
        publisher.publish("t", Event(id="first", msg=1))
        reader.sendall(b"sub t as=s from=earliest prefetch=100000\n")
        publisher.publish_many("t", (Event(id=str(n), msg=text) for n in range(20_000)))
        before = resident_bytes(broker.pid)
        publisher.publish_many("t", (Event(id=str(n), msg=text) for n in range(count)))
        assert resident_bytes(broker.pid) - before < 64 << 20
        received, rest = 0, b""
        while received < count + 20_001:
            data = rest + reader.recv(1 << 20)
            ends = data.count(b"}\n")
            rest = data[-1:]
            if ends:
                reader.sendall(b"ack t @" + b" @".join(b"%d" % n for n in range(received, received + ends)) + b"\n")
            received += ends
        # The last acks may not have arrived yet.
        until(lambda: standing(publisher)["pending"] == 0)
        assert standing(publisher)["dead"] == 0


def test_a_reader_that_takes_nothing_is_cut_off_and_its_events_go_to_another(tmp_path: Path) -> None:
    count = 20_000
    with (
        BrokerProcess(tmp_path / "b", "--stalled-after", "1s") as broker,
        SyncClient(broker.address) as client,
        socket.create_connection(("127.0.0.1", broker.port), 10) as stalled,
    ):
        client.publish_many("t", (Event(id=str(n), msg="x" * 1000) for n in range(count)))
        stalled.sendall(b"sub t as=s from=earliest prefetch=100000 timeout=1h\n")
        until(lambda: standing(client)["in_flight"] > 0)
        until(lambda: standing(client)["in_flight"] == 0)
        assert standing(client)["pending"] == count


async def test_a_consumer_that_dies_on_receipt_leads_to_a_dead_letter_and_no_loop(broker: BrokerProcess) -> None:
    async with Client(broker.address) as client:
        await client.publish("t", Event(id="poison", msg="x"))
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", broker.port), 10) as consumer, consumer.makefile("rb") as lines:
                consumer.sendall(b"hello fragile\nsub t as=s from=earliest tries=3\n")
                while not lines.readline().startswith((b"{", b'{"try"')):
                    pass
        letters = await client.subscribe("dead_letters", from_="earliest")
        (letter,) = await anext(letters)
        msg = letter.decode()
        assert (msg["event"]["id"], msg["tries"]) == ("poison", 3)
        assert [(error["cause"], error["client"]) for error in msg["errors"]] == [("disconnect", "fragile")] * 3


async def test_a_dead_connections_events_go_to_another_reader_at_once(broker: BrokerProcess) -> None:
    async with Client(broker.address) as client:
        await client.publish("t", Event(id="1", msg="x"))
        with socket.create_connection(("127.0.0.1", broker.port), 10) as first, first.makefile("rb") as lines:
            first.sendall(b"sub t as=s from=earliest\n")
            while not lines.readline().startswith(b"{"):
                pass
            second = await client.subscribe("t", as_="s")
        # Without the behaviour under test, the batch would arrive only after 30 s. On an idle machine it takes 100 ms.
        with anyio.fail_after(15):
            batch = await anext(second)
        assert batch[0].attempt == 2


async def test_sigterm_returns_events_in_flight_without_a_failed_try(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), 10) as reader, reader.makefile("rb") as lines:
        with SyncClient(broker.address) as client:
            client.publish("t", Event(id="1", msg="x"))
        reader.sendall(b"sub t as=s from=earliest\n")
        while not lines.readline().startswith(b"{"):
            pass
        assert broker.terminate() == 0
    broker.start()
    async with Client(broker.address) as client:
        batch = await anext(await client.subscribe("t", as_="s"))
        assert batch[0].attempt == 1


def test_sigterm_waits_until_replies_are_sent(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client:
        client.publish_many("t", [Event(id=str(n), msg="x" * 100_000) for n in range(120)])
    with socket.socket() as slow:
        # The buffer is much smaller than the reply, so that most of the reply waits in the broker.
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", broker.port))
        slow.sendall(b"read t 0 limit=120 bytes=16777216\n")
        with slow.makefile("rb") as lines:
            while not lines.readline().startswith(b"+OK read t 120"):
                pass
            os.kill(broker.pid, signal.SIGTERM)
            assert sum(line.startswith(b"{") and line.endswith(b"}\n") for line in lines) == 120
    assert broker.wait(20) == 0


async def test_a_connection_that_is_accepted_while_the_broker_ends_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path / "b", "memory", limits=Limits(1 << 20, 1 << 20, 30.0))
    async with server.open([]):
        await server.drain()
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            port = listener.extra(SocketAttribute.local_port)
            async with await anyio.connect_tcp("127.0.0.1", port) as client:
                with anyio.fail_after(30):
                    async with await cast(SocketListener, listener.listeners[0]).accept() as accepted:
                        await server.handle(accepted)
                    assert (await client.receive()).startswith(b"-ERR shutting_down ")


def test_connections_above_the_limit_get_a_reason(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "b", "--connections-max", "2") as broker:
        kept = [socket.create_connection(("127.0.0.1", broker.port), 10) for _ in range(2)]
        for connection in kept:
            connection.sendall(b"ping\n")
            with connection.makefile("rb") as lines:
                assert lines.readline().startswith(b"+OK")
                assert lines.readline() == b"+PONG\n"
        with socket.create_connection(("127.0.0.1", broker.port), 10) as third:
            assert third.recv(100) == b"-ERR too_many 2 connections are open\n"
            assert third.recv(100) == b""
        for connection in kept:
            connection.close()
        deadline = time.monotonic() + 10
        while True:
            with socket.create_connection(("127.0.0.1", broker.port), 10) as again:
                if again.recv(100).startswith(b"+OK"):
                    return
            assert time.monotonic() < deadline


def test_without_file_descriptors_new_connections_wait_and_the_broker_continues(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "b") as broker:
        there = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
        _, most = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (there + 4, most))
        waiting = [socket.create_connection(("127.0.0.1", broker.port), 60) for _ in range(20)]
        until(lambda: broker.said("no file descriptors are left"), describe=broker.log)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (most, most))
        for connection in waiting:
            with connection:
                assert connection.recv(100).startswith(b"+OK")


def test_an_oversize_line_is_skipped_and_the_next_command_works(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "b", "--line-bytes-max", "64KiB") as broker,
        socket.create_connection(("127.0.0.1", broker.port), 10) as connection,
        connection.makefile("rb") as lines,
    ):
        lines.readline()
        connection.sendall(b'pub t {"id":"1","msg":"' + b"x" * 200_000 + b'"}\nping\n')
        assert lines.readline() == b"-ERR too_long max=65536\n"
        assert lines.readline() == b"+PONG\n"


@pytest.mark.parametrize(("tries", "place"), [(5, "waiting"), (1, "dead")])
@pytest.mark.parametrize("cause", ["disconnect", "timeout"])
def test_the_failed_tries_of_many_events_are_counted_in_shares(tries: int, place: str, cause: str) -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, f"sub t as=s prefetch=100000 timeout=1s tries={tries}")
    core.type(core.connect(), *(f'pub t {{"id":"{n}","msg":1}}' for n in range(10_000)))
    core.receive(session)
    subscription = core.broker.topics["t"].subscriptions["s"]
    if cause == "disconnect":
        core.disconnect(session)
    else:
        core.type(session, "sub t as=s prefetch=1")
        core.pass_time(1.2)
    assert 0 < len(subscription.attempts) < 10_000
    core.pass_time(1)
    assert len(subscription.attempts) == 10_000
    assert all(attempts.count == 1 for attempts in subscription.attempts.values())
    if cause == "disconnect":
        assert (subscription.waiting, subscription.consumers) == ((10_000, []) if place == "waiting" else (0, []))
    assert len(subscription.dead) == (10_000 if place == "dead" else 0)
