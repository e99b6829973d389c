"""``python -m bench.delayed [EVENTS]``: measure the cost of events that wait for their due times.

It compares delayed events with the same number without a delay: the rate of publishing, the broker's memory and processor
time, the snapshot, and a start after a kill. Then it measures the delivery of delayed events that are due at once. Another
client sends pings meanwhile.
"""

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Final

from bench.broker_process import processor_seconds, resident_bytes
from bench.programs import folder, program
from bench.wire import WireReader, connect, publish_all

EVENTS: Final = 1_000_000
CHUNK: Final = 1000
LEAD_S: Final = 60.0
"""The time between the start of the second part and its due time. All its events must be published by then."""


def main(words: list[str]) -> None:
    """Print the figures."""
    count = int(words[0]) if words else EVENTS
    for name, members in (("plain", ""), ("delayed", ',"delay":"30d"'), ("delayed and expiring", _BOTH)):
        with folder() as home:
            _measure_waiting(name, members, count, home)
    with folder() as home:
        _measure_due(count, home)


_BOTH: Final = ',"delay":"30d","expires":"31d"'


def _measure_waiting(name: str, members: str, count: int, home: Path) -> None:
    with program(home / "log", *_words(home)) as (port, process):
        _subscribe(port)
        with closing(connect(port)) as connection:
            before = resident_bytes(process.pid)
            began = time.perf_counter()
            publish_all(connection, list(_chunks(count, members)), count)
            seconds, used_s = time.perf_counter() - began, processor_seconds(process.pid)
        with _Pings(port) as pings, closing(connect(port)) as connection:
            # A consumer passes all events that are not due.
            connection.sendall(b'sub bench as=waiting\npub bench {"id":"last","priority":0,"msg":0}\n')
            _read_until(connection, b'"id":"last"' if members else b'"id":"0"')
        memory = resident_bytes(process.pid) - before
        process.kill()
    snapshot = (home / "data/state/snapshot").stat().st_size
    began = time.perf_counter()
    with program(home / "log", *_words(home)) as (_, process):
        start_s, after = time.perf_counter() - began, resident_bytes(process.pid)
        start_used_s = processor_seconds(process.pid)
        print(
            f"{name}: {count:,} events, {count / seconds:,.0f} /s published"
            f" ({used_s / count * 1e6:.1f} us of the processor each), {memory / 1e6:,.0f} MB more memory,"
            f" {after / 1e6:,.0f} MB after a kill, {start_s:.1f} s to start"
            f" ({start_used_s:.1f} s of the processor), a snapshot of {snapshot / 1e6:,.1f} MB,"
            f" longest ping {pings.longest_s * 1000:,.0f} ms"
        )


def _measure_due(count: int, home: Path) -> None:
    with program(home / "log", *_words(home)) as (port, process), closing(connect(port)) as connection:
        _subscribe(port)
        due_s = time.time() + LEAD_S
        publish_all(connection, list(_chunks(count, f',"due":{round(due_s * 1000)}')), count)
        late_s = time.time() - due_s
        if late_s > 0:
            print(f"the events were published {late_s:.0f} s after they were due; take fewer of them")
        with _Pings(port) as pings, closing(connect(port)) as consumer:
            consumer.settimeout(2 * LEAD_S)
            consumer.sendall(b"sub bench as=waiting prefetch=100000\n")
            reader = WireReader(consumer)
            reader.take()
            began = time.perf_counter()
            while reader.acked < count:
                reader.take()
            seconds = time.perf_counter() - began
        print(
            f"due at once: {count / seconds:,.0f} /s delivered and acked, {resident_bytes(process.pid) / 1e6:,.0f} MB,"
            f" longest ping {pings.longest_s * 1000:,.0f} ms"
        )


class _Pings:
    """Sends pings until the end of the block, and keeps the longest time of an answer."""

    def __init__(self, port: int) -> None:
        self.longest_s = 0.0
        self._port = port
        self._end = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> "_Pings":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(connect(self._port)) as connection:
            while not self._end.wait(0.01):
                began = time.perf_counter()
                connection.sendall(b"ping\n")
                _read_until(connection, b"+PONG")
                self.longest_s = max(self.longest_s, time.perf_counter() - began)


def _subscribe(port: int) -> None:
    with closing(connect(port)) as connection:
        connection.sendall(b"sub bench as=waiting create\n")
        connection.recv(4096)


def _read_until(connection: socket.socket, text: bytes) -> None:
    received = b""
    while text not in received:
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionError("the broker closed the connection")
        received = received[-len(text) :] + data


def _chunks(count: int, members: str) -> Iterator[bytes]:
    for first in range(0, count, CHUNK):
        yield b"".join(
            f'pub bench {{"id":"{n}","priority":0,"msg":"{"x" * 100}"{members}}}\n'.encode()
            for n in range(first, min(first + CHUNK, count))
        )


def _words(home: Path) -> tuple[object, ...]:
    return "broker", "--port", 0, "--metrics-port", 0, "--data-dir", home / "data"


if __name__ == "__main__":
    main(sys.argv[1:])
