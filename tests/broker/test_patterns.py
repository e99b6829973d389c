"""Pattern subscriptions on a real broker: random kills, thousands of topics, and hostile lines."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.support.processes import BrokerProcess

TOPICS = 3000
ROUNDS = int(os.environ.get("TWEETWIRE_TEST_PATTERN_KILLS", "5"))
WITHIN_S = 60.0


class Wire:
    """A connection that sends lines, and reads replies and events."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming = self._socket.makefile("rb")
        self.events: list[tuple[str, int, str]] = []
        assert self.reply().startswith("+OK tweetwire")

    def send(self, *lines: str) -> None:
        self._socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def line(self) -> str:
        line = self._incoming.readline().decode()
        if not line:
            raise EOFError
        if line.startswith("{"):
            event = json.loads(line)
            self.events.append((event["topic"], event["offset"], event["id"]))
        return line

    def reply(self) -> str:
        while not (line := self.line()).startswith(("+", "-")):
            pass
        return line.rstrip("\n")

    def ask(self, line: str) -> str:
        self.send(line)
        return self.reply()

    def close(self) -> None:
        self._incoming.close()
        self._socket.close()


def folder_with_topics(folder: Path, count: int) -> Path:
    """Make the folder of a broker that has created `count` empty topics ``o.<n>``."""
    for number in range(count):
        topic = folder / "topics" / f"o.{number}"
        topic.mkdir(parents=True)
        for ending in ("index", "jsonl"):
            (topic / f"{0:020}.{ending}").touch()
    return folder


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with thousands of topics."""
    folder = folder_with_topics(tmp_path_factory.mktemp("crowded") / "data", TOPICS)
    with BrokerProcess(folder, "--reserve-bytes", "64KiB") as broker:
        yield broker


class Pings:
    """Sends one ping after another in a thread, and counts the answers."""

    def __init__(self, port: int) -> None:
        self._wire = Wire(port)
        self._thread = threading.Thread(target=self._run)
        self._has_ended = False
        self.answered = 0

    def __enter__(self) -> "Pings":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        self._thread.join()
        self._wire.close()

    def _run(self) -> None:
        while not self._has_ended:
            assert self._wire.ask("ping") == "+PONG"
            self.answered += 1


@pytest.mark.parametrize("name", [" as=s", ""])
def test_other_clients_are_served_while_a_pattern_is_attached_to_thousands_of_topics(
    crowded: BrokerProcess, name: str
) -> None:
    wire = Wire(crowded.port)
    with Pings(crowded.port) as pings:
        before = pings.answered
        reply = wire.ask(f"sub o.*{name} prefetch=1000")
        answered = pings.answered - before
    assert f" topics={TOPICS} pending=0 prefetch=1000" in reply
    # If the broker carried out the command in one piece, it would answer at most one ping before it and one with its reply.
    assert answered > 2
    assert wire.ask(f"unsub o.*{name}{' end' if name else ''}") == "+OK unsub o.*"
    wire.close()


def test_an_event_on_each_of_thousands_of_topics_is_delivered_and_acked(crowded: BrokerProcess) -> None:
    wire, publisher = Wire(crowded.port), Wire(crowded.port)
    wire.ask("sub o.* as=each prefetch=1000")
    publisher.send(*(f'pub o.{n} {{"id":"x","msg":{n}}}' for n in range(TOPICS)))
    acked = 0
    while acked < TOPICS:
        if wire.line().startswith("{"):
            topic, offset, _ = wire.events[-1]
            wire.send(f"ack {topic} @{offset}")
        else:
            acked += 1
    assert len({topic for topic, _, _ in wire.events}) == len(wire.events) == TOPICS
    assert wire.ask("unsub o.* as=each end") == "+OK unsub o.*"
    for one in (wire, publisher):
        one.close()


def test_hostile_patterns_are_refused_and_the_broker_stays_well(crowded: BrokerProcess) -> None:
    wire = Wire(crowded.port)
    for pattern in ("..", ".*", "*..*", "a.>.b", "*" * 65_536, "*." * 32_768 + "*", "**", "o*", "\x00*", "é.*"):
        assert wire.ask(f"sub {pattern} as=h").startswith("-ERR bad_name "), pattern
    assert wire.ask("sub *.*.* as=h") == "+OK sub *.*.* as=h topics=0 pending=0 prefetch=1"
    # Lose a connection in the middle of its commands, many times.
    for _ in range(20):
        lost = Wire(crowded.port)
        lost.send("sub > as=lost", "unsub > as=lost end", "sub > prefetch=100000")
        lost.close()
    assert wire.ask("ping") == "+PONG"
    assert wire.ask("unsub *.*.* as=h end") == "+OK unsub *.*.*"
    wire.close()
    assert "a bug" not in crowded.log()


def test_random_kills_lose_no_event_of_a_topic_that_matches(tmp_path: Path) -> None:
    """Events of topics that are created all the time are published, delivered and acked until a SIGKILL ends each round."""
    random = Random(7)
    confirmed: set[str] = set()
    received: set[str] = set()
    number = 0
    with BrokerProcess(tmp_path / "data", "--reserve-bytes", "64KiB") as broker:
        wire = Wire(broker.port)
        assert wire.ask("sub o.> as=s").startswith("+OK sub o.>")
        # This reply comes when its record is on the disk. The earlier record of the pattern is then there, too.
        wire.ask("describe other x")
        wire.close()
        for _ in range(ROUNDS):
            consumer, publisher = Wire(broker.port), Wire(broker.port)
            killer = threading.Timer(random.choice((0.01, 0.05, 0.2, 0.5)), broker.kill)
            killer.start()
            with suppress(OSError, EOFError):
                assert consumer.ask("sub o.> as=s prefetch=20").startswith("+OK sub o.>")
                while True:
                    ids = [f"e{number + step}" for step in range(random.randint(1, 5))]
                    number += len(ids)
                    topics = [f"o.{random.randint(0, number // 3)}.x" for _ in ids]
                    for id_, topic in zip(ids, topics, strict=True):
                        assert publisher.ask(f'pub {topic} {{"id":"{id_}","msg":1}}').startswith("+OK pub")
                        confirmed.add(id_)
                    consumer.ask("ping")
                    for topic, offset, id_ in consumer.events:
                        received.add(id_)
                        if random.random() < 0.8:
                            consumer.send(f"ack {topic} @{offset}")
                    consumer.events.clear()
            killer.join()
            for one in (consumer, publisher):
                one.close()
            broker.kill()
            broker.start()
        wire = Wire(broker.port)
        wire.ask("sub o.> as=s prefetch=100000")
        deadline = time.monotonic() + WITHIN_S
        while not confirmed <= received | {id_ for _, _, id_ in wire.events}:
            assert time.monotonic() < deadline, confirmed - received - {id_ for _, _, id_ in wire.events}
            wire.ask("ping")
        assert wire.ask("unsub o.> as=s end") == "+OK unsub o.>"
        wire.close()
        broker.kill()
        broker.start()
        wire = Wire(broker.port)
        stats = json.loads(wire.ask("stats").removeprefix("+OK stats "))
        assert stats["patterns"] == []
        assert not any(report["subscriptions"] for report in stats["topics"].values())
        wire.close()
        assert "a bug" not in broker.log()
