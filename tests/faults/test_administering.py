"""Kill a real broker in the middle of a drop, a purge or a seek, and compare it with a model after each start.

A confirmed command took effect. An unconfirmed one took effect completely or not at all. Events of another topic,
published at the same moment, are lost only if they were not confirmed, and no purged event comes back.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO

import pytest

from bench.wire import connect
from tests.support.processes import BrokerProcess

ROUNDS = int(os.environ.get("TWEETWIRE_TEST_ADMIN_KILLS", "10"))
TOPICS = ("a", "b", "c")
BESIDE = "beside"
FLAGS = ("--segment-bytes", "2KiB", "--reserve-bytes", "64KiB", "--recent-bytes", "64KiB")
AFTER_S = (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03)
REMOVAL_S = 1.3
"""The broker removes purged segments once a second."""
WITHIN_S = 60.0


@dataclass
class TopicState:
    """A topic's events by offset, and the unsettled ones of its subscription, None without a subscription."""

    first: int = 0
    events: dict[int, str] = field(default_factory=dict)
    open: set[int] | None = None

    @property
    def next(self) -> int:
        """The offset of the next event."""
        return max(self.events, default=self.first - 1) + 1

    def purge(self, below: int) -> None:
        """Delete the events below an offset."""
        self.first = max(self.first, min(below, self.next))
        self.events = {at: id_ for at, id_ in self.events.items() if at >= self.first}
        if self.open is not None:
            self.open = {at for at in self.open if at >= self.first}

    def seek(self, start: int) -> None:
        """Continue the subscription at an offset."""
        self.open = {at for at in self.events if at >= start}


class Wire:
    """A connection that sends a line and reads its answer."""

    def __init__(self, port: int) -> None:
        self.socket: socket.socket = connect(port)
        self.lines: IO[bytes] = self.socket.makefile("rb")

    def ask(self, line: str) -> str:
        self.socket.sendall(f"{line}\n".encode())
        return self.lines.readline().decode().rstrip("\n")

    def answer(self, line: str) -> str:
        reply = self.ask(line)
        assert reply.startswith("+OK"), f"{line}: {reply}"
        return reply

    def read(self, topic: str) -> dict[int, str]:
        """Return the ids of all events by offset."""
        count = int(self.answer(f"read {topic} earliest limit=100000 bytes=16777216").split()[3])
        events = [json.loads(self.lines.readline()) for _ in range(count)]
        return {event["offset"]: event["id"] for event in events}


@contextmanager
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    one = Wire(broker.port)
    with one.socket, one.lines:
        one.socket.settimeout(WITHIN_S)
        yield one


class Model:
    """The topics as the broker has confirmed them."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._ids = 0
        self.topics: dict[str, TopicState] = {}
        # Ids that were sent to the other topic and are not confirmed yet
        self.beside: list[str] = []
        self.sent: list[str] = []

    def live(self, asked: Wire) -> None:
        """Publish, subscribe and ack for a while, and wait for the confirmation of each command."""
        for name in self._dice.sample(TOPICS, 2):
            topic = self.topics.setdefault(name, TopicState())
            for id_ in self.next_ids(self._dice.randrange(1, 30)):
                body = json.dumps({"id": id_, "priority": self._ids % 3, "msg": "x" * 60})
                offset = int(asked.answer(f"pub {name} {body}").split()[3])
                assert offset == topic.next
                topic.events[offset] = id_
                if topic.open is not None:
                    topic.open.add(offset)
            if topic.open is None and self._dice.random() < 0.7:
                asked.answer(f"sub {name} as=s from=earliest prefetch=1")
                event = json.loads(asked.lines.readline())
                asked.answer(f"unsub {name} as=s")
                topic.open = set(topic.events)
                assert event["offset"] in topic.open
            if topic.open:
                self._ack(asked, name, topic.open)

    def _ack(self, asked: Wire, name: str, unsettled: set[int]) -> None:
        asked.answer(f"sub {name} as=s prefetch=1000")
        delivered = [json.loads(asked.lines.readline())["offset"] for _ in unsettled]
        assert set(delivered) == unsettled
        settled = delivered[: self._dice.randrange(1, len(delivered) + 1)]
        asked.answer(f"ack {name} {' '.join(f'@{offset}' for offset in settled)}")
        asked.answer(f"unsub {name} as=s")
        unsettled.difference_update(settled)

    def next_ids(self, count: int) -> list[str]:
        self._ids += count
        return [f"e{number}" for number in range(self._ids - count, self._ids)]

    def command(self) -> tuple[str, dict[str, TopicState]]:
        """Choose a drop, a purge or a seek. Returns its line, and the topics after it."""
        after = deepcopy(self.topics)
        name = self._dice.choice(sorted(self.topics))
        topic = after[name]
        verbs = ["drop", "purge", "purge"] + ["seek", "seek"] * (topic.open is not None)
        verb = self._dice.choice(verbs)
        place = self._dice.randrange(topic.first, topic.next + 1)
        if verb == "drop":
            del after[name]
            return f"drop {name}", after
        if verb == "purge":
            topic.purge(place)
            return f"purge {name} before=@{place}", after
        topic.seek(place)
        return f"seek {name} as=s to={place}", after

    def compare(self, asked: Wire, candidates: list[dict[str, TopicState]]) -> None:
        """Compare the broker with the states that are possible, and continue with the one that it has."""
        found = self._found(asked)
        assert found in candidates, f"{found}\nis none of\n{candidates}"
        self.topics = found
        beside = list(asked.read(BESIDE).values())
        assert beside[: len(self.beside)] == self.beside
        assert beside == (self.beside + self.sent)[: len(beside)]
        self.beside, self.sent = beside, []

    def _found(self, asked: Wire) -> dict[str, TopicState]:
        infos = {one["topic"]: one for one in json.loads(asked.answer("topics").removeprefix("+OK topics "))}
        found: dict[str, TopicState] = {}
        for name in TOPICS:
            if name in infos:
                unsettled: set[int] | None = None
                reply = asked.ask(f"unsettled {name} as=s limit=100000")
                if reply.startswith("+OK"):
                    runs = json.loads(reply.split(" ", 3)[3])["offsets"]
                    unsettled = {at for first, last in runs for at in range(first, last + 1)}
                found[name] = TopicState(infos[name]["earliest"], asked.read(name), unsettled)
                assert infos[name]["next"] == found[name].next
        return found


def kill_amid(broker: BrokerProcess, model: Model, line: str, dice: Random) -> bool:
    """Send a command during publishes to another topic, and kill the broker soon after. Returns whether it was confirmed."""
    with wire(broker) as asked, wire(broker) as publisher:
        model.sent = model.next_ids(dice.randrange(1, 40))
        publishes = (json.dumps({"id": id_, "msg": 1}) for id_ in model.sent)
        publisher.socket.sendall("".join(f"pub {BESIDE} {body}\n" for body in publishes).encode())
        asked.socket.sendall(f"{line}\n".encode())
        is_waited_for = dice.random() < 0.3
        reply = asked.lines.readline() if is_waited_for else b""
        # Purged segments are removed later than the reply is sent.
        time.sleep(dice.uniform(0, REMOVAL_S) if is_waited_for and dice.random() < 0.5 else dice.choice(AFTER_S))
        broker.kill()
        with suppress(ConnectionError):
            reply = reply or asked.lines.readline()
        with suppress(ConnectionError):
            for confirmed in publisher.lines:
                assert confirmed.startswith(f"+OK pub {BESIDE} ".encode())
                first, _, last = confirmed.decode().split()[3].partition("-")
                for _ in range(int(last or first) - int(first) + 1):
                    model.beside.append(model.sent.pop(0))
    assert not reply or reply.startswith(b"+OK"), reply
    return reply.startswith(b"+OK") and reply.endswith(b"\n")


@pytest.mark.timeout(1800)
def test_a_broker_killed_during_a_drop_a_purge_or_a_seek_did_it_completely_or_not_at_all(tmp_path: Path) -> None:
    dice = Random(os.environ.get("TWEETWIRE_TEST_SEED", "1"))
    model, confirmed = Model(dice), 0
    with BrokerProcess(tmp_path / "broker", "--topic", BESIDE, *FLAGS) as broker:
        for number in range(ROUNDS):
            with wire(broker) as asked:
                model.live(asked)
            line, after = model.command()
            is_done = kill_amid(broker, model, line, dice)
            confirmed += is_done
            broker.start()
            with wire(broker) as asked:
                try:
                    model.compare(asked, [after] if is_done else [model.topics, after])
                except AssertionError as error:
                    raise AssertionError(f"round {number}, {line}, confirmed: {is_done}") from error
        assert not broker.logged("a bug; the broker continues")
    assert 0 < confirmed <= ROUNDS
