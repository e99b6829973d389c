"""B1 and B2: load the broker through plain sockets, so that no client library limits it."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import get_context

from bench.broker_process import broker_process
from bench.settings import BenchSettings

__all__ = [
    "CHUNK",
    "WireReader",
    "connect",
    "publish_all",
    "publish_chunks",
    "publish_confirmed",
    "publish_deliver_ack",
    "publishing",
    "receive",
]

WINDOW = 20_000
CHUNK = 1000
PREFETCH = 1000
_OFFSET_AT = len(b'{"topic":"bench","offset":')


def publish_confirmed(settings: BenchSettings) -> float:
    """B1: return the events a second that one pipelined connection publishes; the broker confirms each after fdatasync."""
    with broker_process() as (port, _), closing(connect(port)) as connection:
        chunks = list(publish_chunks(settings.events, settings.size))
        began = time.perf_counter()
        publish_all(connection, chunks, settings.events)
        return settings.events / (time.perf_counter() - began)


def publish_deliver_ack(settings: BenchSettings) -> float:
    """B2: return the events a second from the first publish to the last ack's reply, for one publisher and one subscriber."""
    with (
        broker_process("--topic", "bench") as (port, _),
        closing(connect(port)) as out,
        closing(connect(port)) as into,
    ):
        chunks = list(publish_chunks(settings.events, settings.size))
        into.sendall(b"sub bench as=reader prefetch=%d\n" % PREFETCH)
        began = time.perf_counter()
        with publishing(out, chunks, settings.events):
            reader = WireReader(into)
            while reader.acked < settings.events:
                reader.take()
            return settings.events / (time.perf_counter() - began)


class WireReader:
    """A subscriber's end of a connection, which acks all events of one read with one line."""

    def __init__(self, connection: socket.socket) -> None:
        self.delivered = 0
        self.acked = 0
        self._connection = connection
        self._rest = b""

    def take(self) -> None:
        """Wait for bytes, ack the events in them, and count the acks that are answered."""
        *lines, self._rest = (self._rest + receive(self._connection, 1 << 20)).split(b"\n")
        offsets = [line[_OFFSET_AT : line.index(b",", _OFFSET_AT)] for line in lines if line[:1] == b"{"]
        for line in lines if len(offsets) < len(lines) else ():
            if line.startswith(b"-"):
                raise RuntimeError(f"the broker answered {line!r}")
            if line.startswith(b"+OK ack"):
                self.acked += int(line.rsplit(b" ", 1)[1])
        if offsets:
            self.delivered += len(offsets)
            self._connection.sendall(b"ack bench @%b\n" % b" @".join(offsets))


def receive(connection: socket.socket, most: int) -> bytes:
    """Wait for some bytes. Raises ConnectionError if the broker has closed the connection."""
    data = connection.recv(most)
    if not data:
        raise ConnectionError("the broker closed the connection")
    return data


def connect(port: int) -> socket.socket:
    """Connect to the broker and read its greeting."""
    connection = socket.create_connection(("127.0.0.1", port), 30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.recv(4096)
    return connection


def publish_chunks(events: int, size: int, priorities: int = 7) -> Iterator[bytes]:
    """Yield chunks of a thousand ``pub`` lines, for events whose stored lines have about `size` bytes."""
    # The broker adds about 60 bytes in front of an event.
    text = b"x" * max(1, size - 110)
    for first in range(0, events, CHUNK):
        last = min(first + CHUNK, events)
        yield b"".join(
            b'pub bench {"id":"event-%d","priority":%d,"msg":"%b"}\n' % (n, n % priorities, text)
            for n in range(first, last)
        )


@contextmanager
def publishing(connection: socket.socket, chunks: list[bytes], events: int) -> Iterator[None]:
    """Publish from a separate process, so that the subscriber does not share an interpreter with the publisher."""
    process = get_context("fork").Process(target=publish_all, args=(connection, chunks, events))
    process.start()
    try:
        yield
    finally:
        process.join()


def publish_all(connection: socket.socket, chunks: list[bytes], events: int) -> None:
    """Send all chunks, with at most `WINDOW` events unconfirmed."""
    confirmed = 0
    take_confirmed = _confirmation_counter(connection)
    for number, chunk in enumerate(chunks):
        while number * CHUNK - confirmed >= WINDOW:
            confirmed += take_confirmed()
        connection.sendall(chunk)
    while confirmed < events:
        confirmed += take_confirmed()


def _confirmation_counter(connection: socket.socket) -> Callable[[], int]:
    rest = b""

    def take() -> int:
        nonlocal rest
        *lines, rest = (rest + receive(connection, 1 << 18)).split(b"\n")
        return sum(map(_count, lines))

    return take


def _count(line: bytes) -> int:
    if not line.startswith(b"+OK pub"):
        raise RuntimeError(f"the broker answered {line!r}")
    first, _, last = line.split(b" ")[3].partition(b"-")
    return int(last or first) - int(first) + 1
