"""B4: measure one publisher and a hundred subscribers on plain sockets. Each subscriber receives and acks every event."""

import selectors
import socket
import time
from contextlib import ExitStack, closing

from bench.broker_process import broker_process
from bench.settings import BenchSettings
from bench.wire import connect, publish_chunks, publishing, receive

__all__ = ["deliveries_per_second"]

SUBSCRIBERS = 100
PREFETCH = 5000


class _Reader:
    """One subscriber. Events arrive in order, so it knows their offsets by counting them."""

    def __init__(self, connection: socket.socket, refs: list[bytes]) -> None:
        self.connection = connection
        self.received = 0
        self._refs = refs
        self._last_byte = b""

    def take(self) -> None:
        """Read the available bytes, and ack the events in them."""
        data = self._last_byte + receive(self.connection, 1 << 20)
        self._last_byte = data[-1:]
        # Only events end with a brace; replies to acks end with a number.
        count = data.count(b"}\n")
        if count:
            refs = self._refs[self.received : self.received + count]
            self.received += count
            self.connection.sendall(b"ack bench %b\n" % b" ".join(refs))


def deliveries_per_second(settings: BenchSettings) -> float:
    """Return the deliveries a second, from the first publish until every subscriber has every event."""
    events = max(100, settings.events // 10)
    refs = [b"@%d" % offset for offset in range(events)]
    chunks = list(publish_chunks(events, settings.size, priorities=1))
    with broker_process("--topic", "bench") as (port, _), ExitStack() as stack:
        out = stack.enter_context(closing(connect(port)))
        readers = [_Reader(stack.enter_context(closing(connect(port))), refs) for _ in range(SUBSCRIBERS)]
        selector = stack.enter_context(selectors.DefaultSelector())
        for reader in readers:
            reader.connection.sendall(b"sub bench prefetch=%d\n" % PREFETCH)
            reader.connection.recv(4096)
            selector.register(reader.connection, selectors.EVENT_READ, reader)
        began = time.perf_counter()
        with publishing(out, chunks, events):
            while any(reader.received < events for reader in readers):
                for key, _ in selector.select(10):
                    key.data.take()
            return events * SUBSCRIBERS / (time.perf_counter() - began)
