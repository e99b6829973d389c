"""HTTP: measure the memory of thousands of idle event streams, and publishing in batches, through the HTTP gateway."""

import http.client
import resource
import socket
import threading
import time
from contextlib import ExitStack, closing
from typing import Final, NamedTuple

from bench.broker_process import broker_process, resident_bytes
from bench.settings import BenchSettings
from demo.ports import free_port

__all__ = ["STREAMS", "Streams", "idle_streams", "publish_batches"]

STREAMS: Final = 10_000
BATCH: Final = 1_000
WRITERS: Final = 4


class Streams(NamedTuple):
    """The memory that idle event streams add to a broker (bytes), and the seconds until each has received one event."""

    memory: int
    seconds: float


def idle_streams() -> Streams:
    """Open the streams, one connection each, and publish one event."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    port = free_port()
    flags = ("--topic", "bench", "--http-port", str(port), "--connections-max", str(2 * STREAMS))
    with broker_process(*flags) as (_, pid), ExitStack() as stack:
        before = resident_bytes(pid)
        streams = [stack.enter_context(closing(_follow(port))) for _ in range(STREAMS)]
        memory = resident_bytes(pid) - before
        began = time.perf_counter()
        publisher = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port)))
        publisher.request("POST", "/topics/bench", b'{"id":"1","msg":"to all"}')
        publisher.getresponse().read()
        for stream in streams:
            while b"data: " not in stream.recv(4096):
                pass
        return Streams(memory, time.perf_counter() - began)


def publish_batches(settings: BenchSettings) -> float:
    """Return the events per second that writers publish with ``POST``, each with one batch at a time."""
    port = free_port()
    head = b'{"id":"%07d","msg":"'
    line = head + b"x" * (settings.size - len(head % 0) - 3) + b'"}\n'
    body = b"".join(line % number for number in range(BATCH))
    batches = max(1, settings.events // (BATCH * WRITERS * 4))
    with broker_process("--topic", "bench", "--http-port", str(port)):
        threads = [threading.Thread(target=_write, args=(port, body, batches)) for _ in range(WRITERS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return WRITERS * batches * BATCH / (time.perf_counter() - began)


def _follow(port: int) -> socket.socket:
    stream = socket.create_connection(("127.0.0.1", port), 60)
    stream.sendall(b"GET /topics/bench/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = b""
    while b"\r\n\r\n" not in received:
        received += stream.recv(4096)
    return stream


def _write(port: int, body: bytes, batches: int) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for _ in range(batches):
            connection.request("POST", "/topics/bench", body, {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.HTTPStatus.OK:
                raise RuntimeError(f"the gateway answered {answer.status}")
