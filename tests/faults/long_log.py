"""Kill a broker that has a long log. Measure the time until it serves again, and check that all events are there."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

from bench.wire import connect, publish_all, publish_chunks, receive
from tests.faults.verdict import Verdict
from tests.support.processes import BrokerProcess

__all__ = ["STEP_BYTES", "long_log"]

TOPIC: Final = "bench"
EVENT_BYTES: Final = 2000
STEP_BYTES: Final = 20 << 20
ACKED: Final = 1000
LOOKED_AT: Final = 1000


def long_log(size: int, folder: Path, dice: Random, tell: Callable[[], None], *flags: str) -> Verdict:
    """Store events of about `size` bytes in total, kill the broker, and check random events and the unsettled ones."""
    steps, in_step = max(1, size // STEP_BYTES), STEP_BYTES // EVENT_BYTES
    events = steps * in_step
    with BrokerProcess(folder / "broker", *flags) as broker:
        with closing(connect(broker.port)) as reader, closing(connect(broker.port)) as publisher:
            reader.sendall(b"sub %b as=reader prefetch=%d timeout=1h create\n" % (TOPIC.encode(), ACKED))
            reader.recv(4096)
            for _ in range(steps):
                publish_all(publisher, list(publish_chunks(in_step, EVENT_BYTES)), in_step)
                tell()
            _ask(reader, f"ack {TOPIC} {' '.join(f'@{offset}' for offset in _delivered(reader))}")
        broker.kill()
        began = time.perf_counter()
        broker.start()
        verdict = Verdict(1, events, longest_start_s=time.perf_counter() - began)
        with closing(connect(broker.port)) as connection:
            wrong = [
                offset for offset in dice.sample(range(events), LOOKED_AT) if not _is_there(connection, offset, in_step)
            ]
            backlog = json.loads(_ask(connection, f"backlog {TOPIC} as=reader").split(" ", 3)[3])
            after = int(_ask(connection, f"read {TOPIC} {events} limit=1").rpartition("=")[2])
    verdict.lost = len(wrong) + abs(events - ACKED - sum(backlog["by_priority"].values())) + abs(events - after)
    verdict.notes = tuple(f"long log: @{offset} is not what was stored" for offset in wrong[:3])
    return verdict


def _delivered(reader: socket.socket) -> list[int]:
    """Read the events in flight: their number is the prefetch."""
    data = b""
    while data.count(b"\n") < ACKED:
        data += receive(reader, 1 << 20)
    return [json.loads(line)["offset"] for line in data.splitlines()]


def _is_there(connection: socket.socket, offset: int, in_step: int) -> bool:
    line = _ask(connection, f"read {TOPIC} {offset} limit=1", lines=2).splitlines()[1]
    event = json.loads(line)
    return bool(event["offset"] == offset and event["id"] == f"event-{offset % in_step}")


def _ask(connection: socket.socket, line: str, lines: int = 1) -> str:
    connection.sendall(f"{line}\n".encode())
    answer = b""
    while answer.count(b"\n") < lines:
        answer += receive(connection, 1 << 16)
    return answer.decode()
