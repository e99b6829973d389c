"""The peer Redis Streams: a consumer group on a stream, with the append-only file synced before every reply."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from bench.peers.peer import Consumed, PeerBroker, PeerTask, server
from bench.programs import folder
from demo.ports import free_port

__all__ = ["REDIS", "xadds_per_second"]

_BATCH = 1000


def _start(home: Path, port: int) -> Iterator[None]:
    settings = ("--bind", "127.0.0.1", "--dir", home, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
    with server(home / "log", port, "redis-server", "--port", port, *settings):
        yield


def _prepare(task: PeerTask) -> None:
    with redis.Redis(port=task.port) as client:
        client.xgroup_create("bench", "readers", id="0", mkstream=True)


def _publish(task: PeerTask) -> None:
    with redis.Redis(port=task.port) as client:
        for first in range(0, task.events, _BATCH):
            pipeline = client.pipeline(transaction=False)
            for _ in range(first, min(first + _BATCH, task.events)):
                pipeline.xadd("bench", {"msg": task.body})
            pipeline.execute()


def _consume(task: PeerTask) -> float:
    consumed = Consumed(task.events)
    with redis.Redis(port=task.port) as client:
        while True:
            answer = client.xreadgroup("readers", "reader", {"bench": ">"}, count=_BATCH, block=1000)
            for _, entries in answer:
                client.xack("bench", "readers", *(entry for entry, _ in entries))
                if consumed.note(len(entries)):
                    return consumed.rate()


REDIS = PeerBroker(
    "Redis Streams", "redis-server", "on the disk (appendfsync always)", _start, _prepare, _publish, _consume
)


def xadds_per_second(events: int, size: int) -> float:
    """Measure redis-benchmark with one connection and pipelines of 1,000 XADD, with the same file syncs as the peer."""
    port = free_port()
    with folder() as home, contextmanager(_start)(home, port):
        command = ["redis-benchmark", "-p", str(port), "-c", "1", "-P", "1000", "-n", str(events), "--csv"]
        ended = subprocess.run(
            [*command, "XADD", "bench", "*", "msg", "x" * size], capture_output=True, text=True, check=True
        )
        return float(ended.stdout.splitlines()[-1].split(",")[1].strip('"'))
