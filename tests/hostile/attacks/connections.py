"""Attacks by connections: resets, silence, incomplete handshakes, single bytes, other protocols, clients that do not read."""

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Final

from tests.hostile.attacks.attack import Attack, connect, reset, say
from tests.hostile.target import Target

__all__ = ["ATTACKS"]

RESETS: Final = 10_000
SILENT: Final = 10_000
HELD_S: Final = 5.0
GREETINGS: Final = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /event HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


def _port(target: Target, name: str) -> int:
    return target.ports[name] if name else target.port


def resets_of(name: str) -> Callable[[Target, float], int]:
    """Connect and reset at once, on the listener `name` (the one for lines by default)."""

    def resets(target: Target, size: float) -> int:
        count = int(RESETS * size)
        for _ in range(count):
            reset(connect(_port(target, name)))
        return count

    return resets


def resets_while_busy(target: Target, size: float) -> int:
    """Reset connections while the event loop has work, so that each reset arrives before the connection's handler runs."""
    rounds = max(1, int(20 * size))
    line = b'pub busy {"id":"1","msg":"%s"}\n' % (b"x" * 500)
    for _ in range(rounds):
        with connect(target.port) as busy:
            busy.sendall(line * 500)
            for one in [connect(target.port) for _ in range(100)]:
                reset(one)
    return rounds * 100


def held_of(name: str, first: bytes) -> Callable[[Target, float], int]:
    """Open connections to the listener `name`, send `first` on each, and hold them in silence."""

    def held(target: Target, size: float) -> int:
        count = int(SILENT * size)
        with ExitStack() as stack:
            for _ in range(count):
                with suppress(OSError):
                    connection = stack.enter_context(connect(_port(target, name)))
                    if first:
                        connection.sendall(first)
            time.sleep(HELD_S * size)  # the silence is the attack
        return count

    return held


def foreign_protocols(target: Target, size: float) -> int:
    """Speak HTTP and TLS to every listener."""
    count = 0
    for _ in range(max(1, int(300 * size))):
        for name in ("", "source", "source_clients"):
            for greeting in GREETINGS:
                with connect(_port(target, name)) as connection, suppress(ConnectionError):
                    connection.sendall(greeting)
                    count += 1
    return count


def dripping(target: Target, size: float) -> int:
    """Send an endless line, one byte at a time, on many connections at once."""
    count = max(10, int(500 * size))
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(target.port)) for _ in range(count)]
        for byte in b'pub t {"id":"1","msg":"' + b"x" * int(200 * size):
            for connection in connections:
                connection.sendall(bytes([byte]))
    return count


def endless_lines(target: Target, size: float) -> int:
    """Send lines that are far longer than the limit and never end, on several connections."""
    megabytes, block = max(8, int(200 * size)), b"x" * (1 << 20)
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(target.port)) for _ in range(8)]
        for _ in range(megabytes // 8):
            for connection in connections:
                connection.sendall(block)
    return megabytes


def short_lines(target: Target, size: float) -> int:
    """Send as many as possible of the shortest lines that are refused, on several connections, and read no reply."""
    rounds, block, sent = max(100, int(1000 * size)), b"x\n" * (128 << 10), 0
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(target.port)) for _ in range(6)]
        for connection in connections:
            connection.setblocking(False)
        for _ in range(rounds):
            for connection in connections:
                with suppress(BlockingIOError):
                    sent += connection.send(block)
            time.sleep(0.01)
    return sent // 2


def _subscribe(port: int, names: Iterable[str]) -> list[socket.socket]:
    readers = []
    for name in names:
        reader = connect(port)
        reader.sendall(f"sub unread as={name} from=earliest prefetch=100000\n".encode())
        readers.append(reader)
    return readers


def consumers_that_do_not_read(target: Target, size: float) -> int:
    """Subscribe many times, read nothing, and publish much more than the buffers of the connection hold."""
    say(target.port, 'pub unread {"id":"0","msg":0}')
    count = max(5, int(100 * size))
    readers = _subscribe(target.port, (f"s{n}" for n in range(count)))
    line = b'pub unread {"id":"1","msg":"%s"}\n' % (b"x" * 1000)
    with connect(target.port) as publisher, publisher.makefile("rb") as incoming:
        incoming.readline()
        for _ in range(max(4, int(50 * size))):
            publisher.sendall(line * 500 + b"ping\n")
            while incoming.readline() != b"+PONG\n":
                pass
    for reader in readers:
        reset(reader)
    say(target.port, *(f"unsub unread as=s{n} end" for n in range(count)))
    return count


ATTACKS: Final = (
    Attack("resets, plain", "open", resets_of(""), "connections"),
    Attack("resets while the loop is busy", "open", resets_while_busy, "connections"),
    Attack("resets, TLS", "tls", resets_of(""), "connections"),
    Attack("resets, event source", "source", resets_of("source"), "connections"),
    Attack("resets, the event source's clients", "source", resets_of("source_clients"), "connections"),
    Attack("resets, the ingester's telnet port", "ingester", resets_of(""), "connections"),
    Attack("resets, metrics", "open", resets_of("metrics"), "connections"),
    Attack("silent sockets, no users", "open", held_of("", b""), "connections"),
    Attack("silent sockets, users", "guarded", held_of("", b""), "connections"),
    Attack("silent sockets, the event source's clients", "source", held_of("source_clients", b""), "connections"),
    Attack("half a command, then silence", "guarded", held_of("", b"hel"), "connections"),
    Attack("half a TLS hello, then silence", "tls", held_of("", b"\x16\x03\x01\x02\x00\x01"), "connections"),
    Attack("half a request to the metrics port", "open", held_of("metrics", b"GET /metr"), "connections"),
    Attack("HTTP and TLS to every port", "source", foreign_protocols, "connections"),
    Attack("bytes that drip", "open", dripping, "connections"),
    Attack("endless lines", "open", endless_lines, "MiB"),
    Attack("short lines, unread replies", "open", short_lines, "lines"),
    Attack("short lines, unread replies, users", "guarded", short_lines, "lines"),
    Attack("consumers that do not read", "open", consumers_that_do_not_read, "consumers"),
)
