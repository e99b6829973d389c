"""Kill a real broker under load, and compare the events that it confirmed before with those that it has after.

A publisher sends as fast as its connection allows. After each start of the broker, it asks for its last stored sequence and
continues after that. A reader acks its events. The comparison uses the protocol, like any client.
"""

import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from tests.faults.verdict import Verdict
from tests.support.processes import BrokerProcess

__all__ = ["kills"]

TOPIC: Final = "kept"
LIFE_S: Final = (0.02, 0.5)
RUN: Final = 50
WINDOW: Final = 2000
PATIENCE_S: Final = 60.0
FLAGS: Final = ("--segment-bytes", "256KiB", "--reserve-bytes", "1MiB", "--recent-bytes", "4MiB")


class _Wire:
    """A connection that sends and receives lines without waiting."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._rest = b""
        self.is_over = False

    def ask(self, line: str) -> str:
        """Send a line and wait for the first line that is not an event."""
        self.socket.sendall(f"{line}\n".encode())
        while True:
            for found in self.lines():
                if not found.startswith("{"):
                    return found
            if self.is_over:
                raise ConnectionError("the broker is gone")

    def lines(self) -> Iterator[str]:
        """Yield the lines of one read, nothing if the broker has ended."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        self.is_over = not data
        *whole, self._rest = (self._rest + data).split(b"\n")
        yield from (line.decode() for line in whole)

    def say(self, lines: list[str]) -> None:
        """Send lines, unless the broker has ended."""
        try:
            self.socket.setblocking(True)
            self.socket.sendall("".join(f"{line}\n" for line in lines).encode())
        except (BlockingIOError, ConnectionError):
            return
        finally:
            self.socket.setblocking(False)


class _Load:
    """The publisher and the reader, across all restarts of the broker."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self.confirmed: dict[int, int] = {}
        self.acked: set[int] = set()
        self.delivered_again = 0
        self._sent = 0
        self._seen: set[int] = set()

    def live(self, port: int, seconds: float, end: Callable[[], None]) -> None:
        """Publish and read for some time, and then end the broker under load."""
        publisher, reader = _greeted(port), _greeted(port)
        try:
            reader.ask(f"sub {TOPIC} as=reader prefetch=200 from=earliest create")
            position = publisher.ask(f"last {TOPIC} p").split(" ", 4)
            known = json.loads(position[4]) if position[0] == "+OK" else None
            self._sent = 0 if known is None else known["sequence"] + 1
            confirmed = self._exchange(publisher, reader, time.monotonic() + seconds)
            end()
            # Confirmations that the broker sent before its end and that are still in the socket count, too.
            for wire in (publisher, reader):
                wire.socket.setblocking(True)
            while not publisher.is_over:
                confirmed += self._confirm(publisher, confirmed)
        finally:
            publisher.socket.close()
            reader.socket.close()

    def _exchange(self, publisher: _Wire, reader: _Wire, end: float) -> int:
        confirmed = self._sent
        with selectors.DefaultSelector() as selector:
            for wire in (publisher, reader):
                wire.socket.setblocking(False)
                selector.register(wire.socket, selectors.EVENT_READ, wire)
            while time.monotonic() < end:
                if self._sent - confirmed < WINDOW:
                    publisher.say([self._publish() for _ in range(RUN)])
                for key, _ in selector.select(0.01):
                    if key.data is publisher:
                        confirmed += self._confirm(publisher, confirmed)
                    else:
                        self._ack(reader)
        return confirmed

    def _publish(self) -> str:
        sequence, self._sent = self._sent, self._sent + 1
        body = f'"id":"{sequence}","priority":{sequence % 5},"msg":"{"x" * 150}","producer":"p","sequence":{sequence}'
        return f"pub {TOPIC} {{{body}}}"

    def _confirm(self, publisher: _Wire, sequence: int) -> int:
        count = 0
        for line in publisher.lines():
            assert line.startswith(f"+OK pub {TOPIC} "), line
            first, _, last = line.split(" ")[3].partition("-")
            for offset in range(int(first), int(last or first) + 1):
                self.confirmed[offset] = sequence + count
                count += 1
        return count

    def _ack(self, reader: _Wire) -> None:
        offsets = [json.loads(line)["offset"] for line in reader.lines() if line.startswith("{")]
        self.delivered_again += sum(offset in self._seen for offset in offsets)
        self._seen.update(offsets)
        taken = [offset for offset in offsets if self._dice.random() < 0.9]
        if taken:
            self.acked.update(taken)
            reader.say([f"ack {TOPIC} {' '.join(f'@{offset}' for offset in taken)}"])


def kills(cycles: int, dice: Random, folder: Path, tell: Callable[[], None]) -> Iterator[Verdict]:
    """Start a broker, load it, kill it, start it again and compare, `cycles` times."""
    load, compared = _Load(dice), 0
    with BrokerProcess(folder / "broker", *FLAGS) as broker:
        for cycle in range(cycles):
            load.live(broker.port, dice.uniform(*LIFE_S), broker.kill)
            began = time.perf_counter()
            broker.start()
            verdict = Verdict(1, longest_start_s=time.perf_counter() - began)
            # The last round compares all events again, not only the new ones.
            verdict += _compare(broker.port, load, compared if cycle < cycles - 1 else 0, f"kill {cycle}")
            compared = max(load.confirmed, default=-1) + 1
            yield verdict
            tell()


def _compare(port: int, load: _Load, start: int, name: str) -> Verdict:
    """Compare the log from offset `start` on, and the events that the reader has not settled, with the confirmed events."""
    wire = _greeted(port)
    try:
        there = _read(wire, start)
        expected = {offset: sequence for offset, sequence in load.confirmed.items() if offset >= start}
        lost = [offset for offset, sequence in expected.items() if there.get(offset) != sequence]
        unsettled = _unsettled(wire)
        forgotten = [offset for offset in there if offset not in load.acked and offset not in unsettled]
    finally:
        wire.socket.close()
    notes = [f"{name}: {TOPIC} @{offset} is {there.get(offset, 'gone')}" for offset in lost[:3]]
    notes += [f"{name}: {TOPIC} @{offset} was not acked and is not given again" for offset in forgotten[:3]]
    doubled = len(there) - len(set(there.values()))
    return Verdict(0, len(expected), len(lost) + len(forgotten), doubled, 0.0, tuple(notes))


def _greeted(port: int) -> _Wire:
    wire = _Wire(port)
    (greeting,) = wire.lines()
    assert greeting.startswith("+OK tweetwire"), greeting
    return wire


def _read(wire: _Wire, start: int) -> dict[int, int]:
    there: dict[int, int] = {}
    while True:
        wire.socket.sendall(f"read {TOPIC} {start} limit=5000 bytes=1048576\n".encode())
        lines: list[str] = []
        while not lines or len(lines) <= int(lines[0].split(" ")[3]):
            lines += wire.lines()
        for line in lines[1:]:
            event = json.loads(line)
            there[event["offset"]] = event["sequence"]
        start = int(lines[0].rpartition("=")[2])
        if len(lines) == 1:
            return there


def _unsettled(wire: _Wire) -> set[int]:
    found: set[int] = set()
    start: int | None = 0
    while start is not None:
        answer = json.loads(wire.ask(f"unsettled {TOPIC} as=reader from={start} limit=100000").split(" ", 3)[3])
        found.update(offset for first, last in answer["offsets"] for offset in range(first, last + 1))
        start = answer["next"]
    return found
