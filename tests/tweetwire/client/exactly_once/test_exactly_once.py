"""Exactly once: each message is stored and handed over once, also after a lost connection or a kill at any place."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from tests.support.processes import BrokerProcess
from tweetwire import SyncClient
from tweetwire.client.exactly_once import Spool

ROUNDS = int(os.environ.get("TWEETWIRE_HANDSHAKE_ROUNDS", "8"))
PATIENCE_S = 120.0 + 20.0 * ROUNDS
PUBLISHING = ("pub2", "+REC", "pubrel", "+COMP")
CONSUMING = ("{", "pubrec", "+REL", "pubcomp")
WHEN = ("before", "after")
VICTIMS = ("connection", "broker", "client")


class Place(NamedTuple):
    """The line at which a connection is cut, before or after it is forwarded. It starts with `begins` and contains `holds`."""

    begins: bytes
    holds: bytes
    when: str
    victim: str


class Program:
    """One of the two programs, started again whenever it was killed."""

    def __init__(self, role: str, folder: Path, count: int) -> None:
        self._words = [sys.executable, "-m", "tests.tweetwire.client.exactly_once.handshaking", role]
        self._folder = folder
        self._count = count
        self._process: subprocess.Popen[bytes] | None = None
        self.log = (folder / f"{role}.log").open("ab")

    def start(self, address: str) -> None:
        self._process = subprocess.Popen(
            [*self._words, address, str(self._folder), str(self._count)], stderr=self.log, start_new_session=True
        )

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)

    @property
    def status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def close(self) -> None:
        self.kill()
        if self._process is not None:
            self._process.wait()
        self.log.close()


class Gate:
    """A proxy between a program and the broker that cuts the connection at `places`, once at each."""

    def __init__(self, broker: BrokerProcess, program: Program, places: list[Place]) -> None:
        self.places = places
        self._broker = broker
        self._program = program
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        with socket.create_connection(self._listener.getsockname()[:2]):
            pass
        with self._lock:
            for one in list(self._open):
                _shut(one)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._listener.close()

    def _run(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            if self._is_closed:
                near.close()
                return
            far = self._reach_broker()
            if far is None:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            self._run(self._carry, near, far)
            self._run(self._carry, far, near)

    def _reach_broker(self) -> socket.socket | None:
        while not self._is_closed:
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", self._broker.port), 10)
            time.sleep(0.02)
        return None

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        """Carry lines one by one until either side ends."""
        rest = b""
        with suppress(OSError):
            source.settimeout(None)
            while data := source.recv(64 << 10):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._pass_on(line, source, sink)
        _shut(source)
        _shut(sink)
        source.close()
        with self._lock:
            self._open.discard(source)

    def _pass_on(self, line: bytes, source: socket.socket, sink: socket.socket) -> None:
        place = next((p for p in self.places if line.startswith(p.begins) and p.holds in line + b" "), None)
        if place is None:
            sink.sendall(line + b"\n")
            return
        self.places.remove(place)
        if place.when == "after":
            sink.sendall(line + b"\n")
        self._cut(place.victim)
        _shut(source)
        _shut(sink)
        raise ConnectionAbortedError

    def _cut(self, victim: str) -> None:
        if victim == "broker":
            with RESTARTING:
                self._broker.kill()
                # If the broker starts too slowly, the clients reconnect until it is ready.
                with suppress(AssertionError):
                    self._broker.start()
        elif victim == "client":
            self._program.kill()


RESTARTING = threading.Lock()


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def places(kinds: tuple[str, ...], seed: int) -> list[Place]:
    """Yield one place for each round: first every place in order, then random ones. The victims take turns."""
    chance = random.Random(seed)
    found = []
    for number in range(ROUNDS):
        at = number if number < 8 else chance.randrange(8)
        kind, when = kinds[at // 2], WHEN[at % 2]
        victim = VICTIMS[(number + seed) % 3] if number < 8 else chance.choice(VICTIMS)
        holds = {"pub2": f'"id":"m{number}"', "{": f'"id":"m{number}"', "pubrec": f"@{number} ", "+REL": f"@{number} "}
        holds |= {"pubcomp": f"@{number} "}
        found.append(Place(kind.encode(), holds.get(kind, f" m{number} ").encode(), when, victim))
    return found


@pytest.fixture
def programs(tmp_path: Path, client: str) -> Iterator[tuple[Program, Program]]:
    publisher = Program(f"publish{client}", tmp_path, ROUNDS)
    consumer = Program(f"consume{client}".removesuffix("-pipelined"), tmp_path, ROUNDS)
    try:
        yield publisher, consumer
    finally:
        publisher.close()
        consumer.close()


@pytest.mark.parametrize(
    "client",
    ["", "-blocking", "-pipelined"],
    ids=["the async client", "the blocking client", "the pipelined publisher"],
)
@pytest.mark.timeout(PATIENCE_S + 60)
def test_each_message_is_stored_once_and_handed_over_once_wherever_it_is_cut(
    broker: BrokerProcess, programs: tuple[Program, Program], tmp_path: Path
) -> None:
    seed = random.randrange(1000)
    publisher, consumer = programs
    with (
        Gate(broker, publisher, places(PUBLISHING, seed)) as first,
        Gate(broker, consumer, places(CONSUMING, seed + 1)) as second,
    ):
        deadline = time.monotonic() + PATIENCE_S
        for program, gate in ((publisher, first), (consumer, second)):
            program.start(gate.address)
        while (publisher.status, consumer.status) != (0, 0):
            assert time.monotonic() < deadline, (seed, first.places, second.places, *_told(tmp_path))
            for program, gate in ((publisher, first), (consumer, second)):
                assert program.status in {None, 0, -signal.SIGKILL}, (seed, *_told(tmp_path))
                if program.status == -signal.SIGKILL:
                    program.start(gate.address)
            time.sleep(0.02)
        assert (first.places, second.places) == ([], []), seed
    with SyncClient(broker.address) as client:
        stored = [event.id for event in client.read("t", 0, limit=10_000).events]
        assert client.stats()["handshakes"] == {"held": 0, "storing": 0, "taken": 0}, seed
    expected = [f"m{number}" for number in range(ROUNDS)]
    assert stored == expected, seed
    assert (tmp_path / "published").read_text().split() == [f"m{n}@{n}" for n in range(ROUNDS)], seed
    assert sorted((tmp_path / "consumed").read_text().split()) == sorted(expected), seed
    for name in ("publisher", "consumer"):
        spool = Spool(tmp_path, name)
        assert (spool.outgoing, spool.incoming) == ({}, {}), seed
        spool.close()


def _told(folder: Path) -> list[str]:
    return [path.read_text()[-4000:] for path in sorted(folder.glob("*.log"))]
