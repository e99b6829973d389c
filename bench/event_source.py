"""G1: measure the event source gateway, with a source that sends as fast as possible and a thousand clients that read."""

import random
import re
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from bench.programs import folder, program
from bench.settings import BenchSettings
from tweetwire import SyncClient

__all__ = ["events_per_second"]

CLIENTS: Final = 1000
WINDOW: Final = 1000
_PORTS: Final = re.compile(r'_on": "127\.0\.0\.1:(\d+)"')


def events_per_second(settings: BenchSettings) -> float:
    """Return the events a second, from the first byte sent until every client has all its events and is closed."""
    chunks = list(_chunks(settings.events))
    with folder() as home, ExitStack() as stack:
        words = ("broker", "--port", 0, "--metrics-port", 0, "--data-dir", home / "data", "--event-source")
        ports = ("--event-source-port", 0, "--event-source-client-port", 0)
        port, _ = stack.enter_context(program(home / "log", *words, *ports))
        source_port, client_port = _ports(home / "log")
        selector = stack.enter_context(selectors.DefaultSelector())
        for number in range(1, CLIENTS + 1):
            client = stack.enter_context(closing(socket.create_connection(("127.0.0.1", client_port), 60)))
            client.sendall(b"%d\n" % number)
            selector.register(client, selectors.EVENT_READ)
        _wait_for_clients(port)
        source = get_context("fork").Process(target=_send, args=(source_port, chunks))
        began = time.perf_counter()
        source.start()
        _read_all(selector)
        took = time.perf_counter() - began
        source.join()
    return settings.events / took


def _chunks(events: int) -> Iterator[bytes]:
    """Yield chunks of lines with all kinds equally often, in an order that is shuffled within windows."""
    dice = random.Random(1)
    for first in range(1, events + 1, WINDOW):
        lines = [_line(sequence, dice) for sequence in range(first, min(first + WINDOW, events + 1))]
        dice.shuffle(lines)
        yield b"".join(lines)


def _line(sequence: int, dice: random.Random) -> bytes:
    kind, one, other = dice.choice(b"FUBPS"), dice.randint(1, CLIENTS), dice.randint(1, CLIENTS)
    if kind == ord("B"):
        return b"%d|B\n" % sequence
    return b"%d|S|%d\n" % (sequence, one) if kind == ord("S") else b"%d|%c|%d|%d\n" % (sequence, kind, one, other)


def _ports(log: Path) -> tuple[int, int]:
    source, client = _PORTS.findall(log.read_text())
    return int(source), int(client)


def _wait_for_clients(port: int) -> None:
    with SyncClient(f"127.0.0.1:{port}") as client:
        while client.stats()["event_source_clients"] < CLIENTS:
            time.sleep(0.01)


def _send(port: int, chunks: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as source:
        for chunk in chunks:
            source.sendall(chunk)


def _read_all(selector: selectors.BaseSelector) -> None:
    while selector.get_map():
        for key, _ in selector.select():
            if not key.fileobj.recv(1 << 18):  # type: ignore[union-attr]
                selector.unregister(key.fileobj)
