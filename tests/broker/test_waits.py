"""Marks, waiting reads and confirmations of a real broker under hostile use."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Event, SyncClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("waits") / "broker") as process:
        yield process


class Typed:
    """A connection on which lines are typed."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), 30)
        self._lines = self.socket.makefile("r")
        assert self.line().startswith("+OK tweetwire")

    def __enter__(self) -> "Typed":
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self.socket.close()

    def send(self, *lines: str) -> None:
        self.socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def line(self) -> str:
        return self._lines.readline().rstrip("\n")


def ping_s(client: SyncClient) -> float:
    began = time.monotonic()
    client.ping()
    return time.monotonic() - began


def test_ten_thousand_waiting_reads_harm_no_other_client(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client, ExitStack() as stack:
        client.create("reads")
        # Each connection has as many as it may, and a flood of further ones.
        many = [stack.enter_context(Typed(broker)) for _ in range(625)]
        for one in many:
            one.send(*["read reads 0 wait=60s"] * 16)
        with Typed(broker) as flood:
            flood.send(*["read reads 0 wait=60s"] * 10_000)
            worst = max(ping_s(client) for _ in range(50))
            began = time.monotonic()
            client.publish("reads", Event(id="1", msg=1))
            assert time.monotonic() - began < 5
            worst = max(worst, *(ping_s(client) for _ in range(50)))
            assert worst < 2
            assert [one.line() for one in many] == ["+OK read reads 1 next=1"] * len(many)


def test_a_wait_ends_with_its_connection(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client:
        client.create("gone")
        for _ in range(200):
            with Typed(broker) as typed:
                typed.send("read gone 0 wait=60s", 'pub gone after=nobody within=20s {"id":"1","msg":1}')
        until(lambda: client.stats()["connections"] == 1, 20)
        assert client.publish("gone", Event(id="2", msg=1), after=[]).durability == "synced"


@pytest.mark.parametrize(
    "line",
    [
        "read t 0 wait=1e9s",
        "read t 0 wait=1000000000s",
        f"mark t as=m @0 except{' @1' * 200_000}",
        "mark t as=m @9999999999999999999999",
        "mark t as=m @5",
        f"mark t as=m checkpoint={'c' * 500_000} @0",
        f"confirm t after={','.join(['m'] * 100_000)}x",
        f"confirm t after={','.join(f'm{n}' for n in range(50_000))}",
        "confirm t within=999999999h",
        'pub t after=a within=1e9s {"id":"1","msg":1}',
        f'pub t {"after=a " * 50_000}{{"id":"1","msg":1}}',
        'pub t after= {"id":"1","msg":1}',
        'pub t after=a after=b {"id":"1","msg":1}',
    ],
    ids=lambda line: line[:40],
)
def test_a_hostile_line_is_refused(broker: BrokerProcess, line: str) -> None:
    with SyncClient(broker.address) as client, Typed(broker) as typed:
        client.create("t")
        typed.send(line)
        assert typed.line().startswith(("-ERR bad_arguments", "-ERR bad_json", "+OK confirm t after=m,mx"))
        assert client.marks("t") == []
        client.confirm("t", after=[])
        assert client.stats("t")["topics"]["t"]["next"] == 0


def test_many_publishers_whose_wait_times_out_do_not_slow_others(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client, ExitStack() as stack:
        client.create("vain")
        many = [stack.enter_context(Typed(broker)) for _ in range(500)]
        for number, one in enumerate(many):
            one.send(f'pub vain after=nobody within=3s {{"id":"{number}","msg":1}}', "ping")
        until(lambda: client.stats("vain")["topics"]["vain"]["next"] == 500, 20)
        began = time.monotonic()
        for n in range(100):
            client.publish("vain", Event(id=str(n), msg=n))
        assert time.monotonic() - began < 10
        assert {one.line().split()[-1] for one in many} == {"synced"}
        assert {one.line() for one in many} == {"+PONG"}
        stats = client.stats()
        assert stats["confirmed_late"] >= 500


def test_a_stop_answers_all_waits_at_once_and_a_kill_loses_no_mark(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        with SyncClient(broker.address) as client:
            client.publish("t", Event(id="0", msg=1))
            client.confirm("t", after=["m"], within_s=20)
            client.mark("t", "m", 1, checkpoint="c")
        with Typed(broker) as reader, Typed(broker) as publisher:
            reader.send("read t 1 wait=60s")
            publisher.send('pub t {"id":"1","msg":1}', 'pub t after=a,b {"id":"2","msg":1}')
            assert reader.line().startswith("+OK read t ")
            assert reader.line().startswith('{"topic":"t","offset":1')
            reader.send("read t latest wait=60s")
            until(lambda: len(broker.logged()) > 0, 5)
            broker.stop()
            rest = [publisher.line(), publisher.line()]
        assert [line.split()[-1] for line in rest if line] == ["synced"] * len([line for line in rest if line])
        assert rest[0]
        broker.start()
        broker.kill()
        broker.start()
        with SyncClient(broker.address) as client:
            (mark,) = client.marks("t")
            assert (mark.offset, mark.checkpoint) == (1, "c")
            assert client.command("confirm t") == "+OK confirm t after=m within=20s"
            assert json.dumps(client.stats("t")["topics"]["t"]["confirm"]) == '{"after": ["m"], "within_ms": 20000}'


def test_retention_waits_for_a_mark_over_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", "--segment-bytes", "8KiB") as broker:
        with SyncClient(broker.address) as client:
            client.create("t", bytes="0B")
            client.mark("t", "m", 0)
            for _ in range(40):
                # A segment ends between two batches.
                client.publish_many("t", (Event(id=str(n), msg="x" * 50) for n in range(50)))
            client.mark("t", "m", 700)
            until(lambda: client.stats("t")["topics"]["t"]["earliest"] > 500, 20)
            assert client.stats("t")["topics"]["t"]["earliest"] <= 700
        broker.kill()
        broker.start()
        with SyncClient(broker.address) as client:
            assert client.read("t", 700, limit=1).events[0].offset == 700
            assert client.mark("t", "m", 2000) == 2000
            until(lambda: client.stats("t")["topics"]["t"]["earliest"] >= 1800, 20)
            assert client.stats("t")["topics"]["t"]["marks"]["m"]["overtaken"] == 0
