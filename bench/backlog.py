"""B8: measure the memory of a long log that no subscription has read, and the time of a restart after a kill."""

import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bench.broker_process import resident_bytes
from bench.programs import folder, program
from bench.settings import BenchSettings
from bench.wire import connect, publish_all, publish_chunks

__all__ = ["SUBSCRIPTIONS", "ReadBacklog", "long_log"]

SUBSCRIPTIONS = 10
STEP = 500_000


class ReadBacklog(NamedTuple):
    """The broker's resident memory (bytes) before a kill and after the restart, and the seconds until it served again."""

    memory: int
    memory_after_start: int
    start_s: float


def long_log(settings: BenchSettings) -> ReadBacklog:
    """Store the events, with durable subscriptions that wait for all of them; kill the broker and start it again."""
    with folder() as home:
        with program(home / "log", *_words(home)) as (port, process):
            with closing(connect(port)) as connection:
                for number in range(SUBSCRIPTIONS):
                    connection.sendall(b"sub bench as=waiting-%d create\n" % number)
                    connection.recv(4096)
            with closing(connect(port)) as connection:
                for first in range(0, settings.backlog, STEP):
                    count = min(STEP, settings.backlog - first)
                    publish_all(connection, list(publish_chunks(count, settings.size)), count)
            memory = resident_bytes(process.pid)
            process.kill()
        began = time.perf_counter()
        with program(home / "log", *_words(home)) as (_, process):
            return ReadBacklog(memory, resident_bytes(process.pid), time.perf_counter() - began)


def _words(home: Path) -> tuple[object, ...]:
    return "broker", "--port", 0, "--metrics-port", 0, "--data-dir", home / "data"
