"""B5, B6, B7: measure the latency of single events.

Latency is measured from the time at which an event was due to be sent. So a stall counts for all events that it delayed.
"""

import os
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass

import anyio
from anyio.abc import SocketStream

from bench.broker_process import broker_process
from bench.settings import BenchSettings
from bench.wire import connect, publish_all, publish_chunks, receive

__all__ = ["RATE", "Latencies", "fdatasync_latencies", "open_loop", "stop_and_wait"]

RATE = 5000
STEP_S = 0.001


@dataclass
class Latencies:
    """Percentiles, in milliseconds."""

    p50: float
    p90: float
    p99: float
    p999: float

    @staticmethod
    def of(seconds: list[float]) -> "Latencies":
        """Summarise latencies given in seconds."""
        cuts = statistics.quantiles(seconds, n=1000, method="inclusive")
        return Latencies(*(1000 * cuts[at - 1] for at in (500, 900, 990, 999)))


def stop_and_wait(settings: BenchSettings) -> float:
    """B5: return the events a second of a backlog with prefetch 1: each event is sent after the ack of the previous one."""
    events = max(100, settings.events // 20)
    with broker_process("--topic", "bench") as (port, _), closing(connect(port)) as out, closing(connect(port)) as into:
        publish_all(out, list(publish_chunks(events, settings.size)), events)
        began = time.perf_counter()
        into.sendall(b"sub bench as=reader prefetch=1 from=earliest max_wait=0s\n")
        rest, acked = b"", 0
        at = len(b'{"topic":"bench","offset":')
        while acked < events:
            *lines, rest = (rest + receive(into, 1 << 16)).split(b"\n")
            for line in lines:
                if line.startswith(b"{"):
                    acked += 1
                    into.sendall(b"ack bench @%b\n" % line[at : line.index(b",", at)])
        return events / (time.perf_counter() - began)


def fdatasync_latencies(size: int, count: int = 2000) -> Latencies:
    """Measure a bare write and fdatasync of `size` bytes on the disk that the broker uses."""
    seconds = []
    block = os.urandom(size)
    with tempfile.TemporaryFile(prefix="tweetwire-bench-", dir=".") as file:
        for _ in range(count):
            began = time.perf_counter()
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - began)
    return Latencies.of(seconds)


def open_loop(settings: BenchSettings, seconds: float = 10.0) -> tuple[Latencies, Latencies]:
    """B6, B7: measure the times from publish to confirmation and to delivery, at 5,000 events/s sent at fixed times."""
    with broker_process("--topic", "bench") as (port, _):
        run = _OpenLoop(settings, port, round(seconds * RATE))
        anyio.run(run.run, backend_options={"use_uvloop": True})
        return Latencies.of(run.confirmed), Latencies.of(run.delivered)


class _OpenLoop:
    """Sends events when they are due, and records when each was confirmed and delivered."""

    def __init__(self, settings: BenchSettings, port: int, events: int) -> None:
        self.events = events
        self.confirmed: list[float] = []
        self.delivered: list[float] = []
        self._port = port
        self._text = b"x" * max(1, settings.size - 110)
        self._began = 0.0

    async def run(self) -> None:
        """Run until all events sent have been confirmed and delivered."""
        async with await anyio.connect_tcp("127.0.0.1", self._port) as into:
            await into.send(b"sub bench as=reader prefetch=100000\n")
            await anyio.sleep(0.2)
            async with await anyio.connect_tcp("127.0.0.1", self._port) as out, anyio.create_task_group() as tasks:
                self._began = time.perf_counter() + 0.1
                tasks.start_soon(self._confirm, out)
                tasks.start_soon(self._deliver, into)
                await self._send(out)

    async def _send(self, out: SocketStream) -> None:
        sent = 0
        while sent < self.events:
            due = min(self.events, int((time.perf_counter() - self._began) * RATE))
            if due > sent:
                lines = [
                    b'pub bench {"id":"event-%d","priority":0,"msg":"%b"}\n' % (n, self._text) for n in range(sent, due)
                ]
                await out.send(b"".join(lines))
                sent = due
            await anyio.sleep(STEP_S / 2)

    def _note(self, into: list[float], count: int) -> None:
        now = time.perf_counter() - self._began
        first = len(into)
        into += [now - (n + 1) / RATE for n in range(first, first + count)]

    async def _confirm(self, out: SocketStream) -> None:
        rest = b""
        while len(self.confirmed) < self.events:
            *lines, rest = (rest + await out.receive()).split(b"\n")
            for line in lines:
                if line.startswith(b"+OK pub"):
                    first, _, last = line.split(b" ")[3].partition(b"-")
                    self._note(self.confirmed, int(last or first) - int(first) + 1)

    async def _deliver(self, into: SocketStream) -> None:
        last = b""
        while len(self.delivered) < self.events:
            data = last + await into.receive(1 << 18)
            last = data[-1:]
            first = len(self.delivered)
            self._note(self.delivered, data.count(b"}\n"))
            if len(self.delivered) > first:
                await into.send(b"ack bench @%b\n" % b" @".join(b"%d" % n for n in range(first, len(self.delivered))))
