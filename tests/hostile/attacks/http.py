"""Attacks on the HTTP gateway: bodies without end, heads held open, readers that do not read, pipelines, floods of streams."""

import time
from contextlib import ExitStack, suppress
from typing import Final

from tests.hostile.attacks.attack import Attack, connect
from tests.hostile.attacks.connections import held_of, resets_of
from tests.hostile.target import Target

__all__ = ["ATTACKS"]

HOST: Final = b"Host: localhost\r\n"
BODIES: Final = 300
READERS: Final = 400
STREAMS: Final = 5_000
REQUESTS: Final = 20_000
TAKES: Final = 5_000
HELD_S: Final = 3.0


def _request(line: bytes, body: bytes = b"", *headers: bytes) -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return line + b" HTTP/1.1\r\n" + HOST + length + b"".join(one + b"\r\n" for one in headers) + b"\r\n" + body


def bodies_without_end(target: Target, size: float) -> int:
    """Begin many large bodies and send nothing more, and one in chunks without end."""
    count = max(2, int(BODIES * size))
    head = b"POST /topics/web HTTP/1.1\r\n" + HOST + b"Content-Length: 4000000\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(connect(target.ports["http"]))
            connection.sendall(head + b"x" * 1_000_000)
        with connect(target.ports["http"]) as endless, suppress(OSError):
            endless.sendall(b"POST /topics/web HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(100):
                endless.sendall(b"10000\r\n" + b"y" * 0x10000 + b"\r\n")
        time.sleep(HELD_S * size)
    return count


def readers_that_do_not_read(target: Target, size: float) -> int:
    """Ask for large parts of a log repeatedly, and read nothing."""
    count = max(4, int(READERS * size))
    line = b'{"id":"1","msg":"' + b"x" * 20_000 + b'"}\n'
    for _ in range(3):
        with connect(target.ports["http"]) as publisher:
            publisher.sendall(_request(b"POST /topics/large", line * 150, b"Content-Type: application/x-ndjson"))
            publisher.recv(4096)
    with ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(connect(target.ports["http"]))
            path = b"/topics/large" if number % 2 else b"/topics/large/events?from=earliest"
            with suppress(OSError):
                connection.sendall(_request(b"GET " + path) * 20)
        time.sleep(HELD_S * size)
    return count


def requests_in_a_pipeline(target: Target, size: float) -> int:
    """Send thousands of requests on one connection without waiting for answers."""
    count = max(100, int(REQUESTS * size))
    with connect(target.ports["http"]) as connection, suppress(OSError):
        connection.settimeout(HELD_S)
        connection.sendall(_request(b"GET /topics") * count)
        time.sleep(HELD_S * size)
    return count


def streams_that_leave(target: Target, size: float) -> int:
    """Open event streams and subscriptions, and leave in the middle of a wait."""
    count = max(20, int(STREAMS * size))
    for number in range(count):
        with connect(target.ports["http"]) as connection:
            as_ = b"?as=n%d" % (number % 50) if number % 2 else b""
            connection.sendall(_request(b"GET /topics/web/events" + as_))
    return count


def takes_of_many_subscriptions(target: Target, size: float) -> int:
    """Take from a new subscription in each request, and never ack."""
    count = max(20, int(TAKES * size))
    with connect(target.ports["http"]) as connection, connection.makefile("rb") as answers:
        for number in range(count):
            connection.sendall(_request(b"POST /subscriptions/web/s%d/take?from=earliest" % number))
            length = 0
            while (line := answers.readline()) not in {b"\r\n", b""}:
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answers.read(length)
    return count


def nonsense(target: Target, size: float) -> int:
    """Send heads that are not HTTP, too long, or contradict themselves."""
    heads = (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 10_000,
        b"POST /topics/web HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /topics/web HTTP/1.1\r\n" + HOST + b"Content-Length: -5\r\n\r\n",
        b"GET /ws HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
        b"GET /topics/\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
        b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    )
    rounds = max(1, int(100 * size))
    for _ in range(rounds):
        for head in heads:
            with connect(target.ports["http"]) as connection, suppress(OSError):
                connection.sendall(head)
                connection.recv(4096)
                connection.shutdown(1)
    return rounds * len(heads)


ATTACKS: Final = (
    Attack("HTTP connections reset at once", "http", resets_of("http"), "resets"),
    Attack("HTTP connections held in silence", "http", held_of("http", b""), "connections"),
    Attack("HTTP heads held open", "http", held_of("http", b"GET / HTTP/1.1\r\nHost: "), "connections"),
    Attack("HTTP bodies without end", "http", bodies_without_end, "bodies"),
    Attack("HTTP readers that do not read", "http", readers_that_do_not_read, "readers"),
    Attack("HTTP requests in a pipeline", "http", requests_in_a_pipeline, "requests"),
    Attack("HTTP event streams that leave", "http", streams_that_leave, "streams"),
    Attack("HTTP takes of many subscriptions", "http", takes_of_many_subscriptions, "takes"),
    Attack("HTTP nonsense", "http", nonsense, "heads"),
)
