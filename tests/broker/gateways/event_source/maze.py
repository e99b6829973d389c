"""A plain model of the event source's rules, random events, and clients and sources with real sockets."""

import json
import random
import selectors
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import SyncClient

__all__ = ["Client", "Crowd", "Gateway", "Source", "expected", "random_lines", "shuffled"]

WITHIN_S = 100.0
KINDS = ("F", "U", "B", "P", "S")


def random_lines(
    count: int, ids: int, *, seed: int = 1, weights: Sequence[int] = (30, 10, 2, 33, 25), first: int = 1
) -> list[str]:
    """Make `count` lines from sequence `first` on, for clients 1…ids. `weights` are those of the kinds F, U, B, P, S."""
    dice = random.Random(seed)
    lines = []
    for sequence, kind in enumerate(dice.choices(KINDS, weights, k=count), first):
        one, other = dice.randint(1, ids), dice.randint(1, ids)
        lines.append(
            f"{sequence}|B"
            if kind == "B"
            else f"{sequence}|S|{one}"
            if kind == "S"
            else f"{sequence}|{kind}|{one}|{other}"
        )
    return lines


def shuffled(lines: Sequence[str], window: int, *, seed: int = 2) -> list[str]:
    """Shuffle the lines within windows of `window` lines."""
    dice = random.Random(seed)
    mixed: list[str] = []
    for at in range(0, len(lines), window):
        some = list(lines[at : at + window])
        dice.shuffle(some)
        mixed += some
    return mixed


def expected(
    lines: Sequence[str], connected: Sequence[str], follows: dict[str, set[str]] | None = None
) -> dict[str, list[str]]:
    """Return the lines that each client must receive. Updates `follows`, which maps a client to its followers."""
    follows = defaultdict(set) if follows is None else follows
    got: dict[str, list[str]] = {id_: [] for id_ in connected}
    for line in lines:
        _, kind, *ids = line.rstrip("\r").split("|")
        if kind == "F":
            follows[ids[1]].add(ids[0])
            to = [ids[1]]
        elif kind == "U":
            follows[ids[1]].discard(ids[0])
            to = []
        elif kind == "P":
            to = [ids[1]]
        elif kind == "S":
            to = list(follows[ids[0]])
        else:
            to = list(connected)
        for id_ in to:
            if id_ in got:
                got[id_].append(line)
    return got


class Client:
    """A client that has connected and sent its id."""

    def __init__(self, port: int, id_: str) -> None:
        self.id = id_
        self.connection = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        self.connection.sendall(f"{id_}\r\n".encode())

    def close(self) -> None:
        self.connection.close()

    def lines(self, count: int) -> list[str]:
        """Return the next `count` lines."""
        data = b""
        while data.count(b"\n") < count:
            # Read no byte after the last wanted line. Each line has more than two bytes, so two bytes for each missing line are
            # safe; the last line is read byte by byte.
            received = self.connection.recv(1 if data.count(b"\n") == count - 1 else 2 * (count - data.count(b"\n")))
            assert received, data
            data += received
        return data.decode().removesuffix("\n").split("\n")

    def rest(self) -> list[str]:
        """Return all lines until the gateway closes the connection."""
        data = bytearray()
        try:
            while received := self.connection.recv(1 << 20):
                data += received
        except ConnectionResetError:
            pass
        text = data.decode()
        return text.split("\n")[:-1]


class Crowd:
    """Many clients, read together until the gateway closes them. Keeps the size and the digest of each client's data."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.digests = {client.id: blake2b() for client in clients}
        self.bytes = 0
        self._selector = selectors.DefaultSelector()
        for client in clients:
            self._selector.register(client.connection, selectors.EVENT_READ, self.digests[client.id])

    def read(self) -> dict[str, str]:
        """Return the digests by id."""
        while self._selector.get_map():
            for key, _ in self._selector.select(WITHIN_S):
                data = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                self.bytes += len(data)
                key.data.update(data)
                if not data:
                    self._selector.unregister(key.fileobj)
        self._selector.close()
        return {id_: digest.hexdigest() for id_, digest in self.digests.items()}


class Source:
    """An event source."""

    def __init__(self, port: int) -> None:
        # Sending has no time limit: a slow machine may need minutes to work through full socket buffers.
        self._connection = socket.create_connection(("127.0.0.1", port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def close(self) -> None:
        """End in order."""
        self._connection.close()

    def reset(self) -> None:
        """End like a lost connection, by a reset."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()

    def send(self, lines: Sequence[str], end: str = "\n") -> None:
        self._connection.sendall("".join(f"{line}{end}" for line in lines).encode())

    def next_due(self) -> int:
        """Ask for the first sequence that is not stored."""
        self._connection.sendall(b"?\n")
        answer = b""
        while not answer.endswith(b"\n"):
            received = self._connection.recv(100)
            assert received, answer
            answer += received
        return int(answer.rpartition(b"=")[2])

    def wait_until_stored(self, sequence: int) -> None:
        """Wait until everything up to a sequence is stored."""
        deadline = time.monotonic() + WITHIN_S
        while self.next_due() <= sequence:
            assert time.monotonic() < deadline
            time.sleep(0.01)


class Gateway(BrokerProcess):
    """A broker with the gateway on, on free ports that it keeps."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        super().__init__(data_dir, "--event-source", *flags)
        self.source_port = self.client_port = 0
        self._own_words = len(self.words)
        self.began_at = 0
        self._counted: dict[str, Any] = {}

    def start(self) -> None:
        ports = (f"--event-source-port={self.source_port}", f"--event-source-client-port={self.client_port}")
        self.words[self._own_words :] = ports
        super().start()
        said = self.logged("event source gateway is listening")[-1]
        self.source_port = int(str(said["events_on"]).rpartition(":")[2])
        self.client_port = int(str(said["clients_on"]).rpartition(":")[2])

    @contextmanager
    def clients(self, *ids: str, known: int | None = None) -> Iterator[list[Client]]:
        """Connect clients, and wait until the gateway counts them; `known` includes clients that were connected before."""
        with ExitStack() as stack:
            clients = []
            for id_ in ids:
                clients.append(Client(self.client_port, id_))
                stack.callback(clients[-1].close)
            self.wait_for("event_source_clients", known or len(set(ids)))
            yield clients

    def source(self) -> Source:
        return Source(self.source_port)

    def stats(self) -> dict[str, Any]:
        with SyncClient(self.address) as client:
            return client.stats()

    def wait_for(self, name: str, value: int) -> None:
        """Wait until a figure of ``stats`` has a value."""
        deadline = time.monotonic() + WITHIN_S
        while (found := self.stats()[name]) != value:
            assert time.monotonic() < deadline, f"{name} is {found}"
            time.sleep(0.01)

    def settle(self) -> None:
        """Wait until sources and clients have disconnected. `count` and `stored` count from this moment on."""
        until(lambda: self.stored()[-1:] in ([], [None]), WITHIN_S)
        # When a source ends, the gateway disconnects all clients, including any that the next test connects too early.
        self.wait_for("event_source_sources", 0)
        self.wait_for("event_source_clients", 0)
        self._counted = self.stats()
        self.began_at = self._counted["topics"]["event_source"]["next"]

    def count(self, name: str) -> int:
        """Return how much a counter has grown since `settle`."""
        name = f"event_source_{name}"
        return int(self.stats()[name]) - int(self._counted.get(name, 0))

    def stored(self, topic: str = "event_source") -> list[Any]:
        """Return the messages of a topic. For the source's topic, return those since `settle`."""
        messages: list[Any] = []
        with SyncClient(self.address) as client:
            at = self.began_at if topic == "event_source" else 0
            end = {info.topic: info.next for info in client.topics()}.get(topic, 0)
            while at < end:
                lines, at = client.read_lines(topic, at)
                messages += [json.loads(line)["msg"] for line in lines]
        return messages
