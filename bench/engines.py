"""Central engines and the bridge as processes, for the rows R1 to R7."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import redis

from bench.engine_files import find_engine_program
from bench.peers.peer import server
from bench.programs import NotMeasured, program
from demo.ports import free_port
from tweetwire import Event, SyncClient
from tweetwire.runtime.launching import ProgramProcess

__all__ = ["bridge", "fill", "nats_server", "rate_of", "redis_server"]

_CHUNK: Final = 1000
_LOOK_S: Final = 0.02
_WITHIN_S: Final = 600.0


@contextmanager
def redis_server(home: Path, *flags: str, port: int = 0) -> Iterator["redis.Redis"]:
    """Start a Redis that syncs its file before each reply, and yield a client. Raises NotMeasured without redis-server."""
    if shutil.which("redis-server") is None:
        raise NotMeasured("redis-server is not installed")
    port = port or free_port()
    settings = ("--bind", "127.0.0.1", "--dir", home, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
    with (
        server(home / "redis.log", port, "redis-server", "--port", port, *settings, *flags),
        redis.Redis(port=port) as client,
    ):
        yield client


@contextmanager
def nats_server(home: Path) -> Iterator[int]:
    """Start a server of NATS with JetStream, and yield its port. Raises NotMeasured without it."""
    executable = find_engine_program("nats-server")
    if executable is None:
        raise NotMeasured("nats-server is missing; `make engines` installs it (needs Go)")
    port, monitor = free_port(), free_port()
    words = ("-a", "127.0.0.1", "-p", str(port), "-m", str(monitor), "-js", "-sd", str(home / "nats"))

    def answers() -> str | None:
        try:
            with urlopen(f"http://127.0.0.1:{monitor}/healthz", timeout=5):
                return f"127.0.0.1:{port}"
        except OSError:
            return None

    with ProgramProcess([executable, *words], home / "nats.log", find_address=answers):
        yield port


@contextmanager
def bridge(home: Path, broker: int, *routes: str) -> Iterator[None]:
    """Start a bridge with routes outwards from the broker at a port of this machine."""
    flags = [word for route in routes for word in ("--out", route)]
    with program(home / "bridge.log", "bridge", "--broker", f"127.0.0.1:{broker}", "--metrics-port", 0, *flags):
        yield


def fill(port: int, topic: str, events: int, size: int, **members: Any) -> None:
    """Publish events whose lines have about `size` bytes."""
    msg = "x" * max(1, size - 110)
    with SyncClient(f"127.0.0.1:{port}", name="bench") as client:
        client.publish_many(topic, (Event(id=f"event-{number}", msg=msg, **members) for number in range(events)))


def rate_of(length: Callable[[], int], events: int) -> float:
    """Wait until `events` have arrived, and return how many arrive in a second, from the first ones on."""
    deadline = time.monotonic() + _WITHIN_S
    first = began = 0.0
    while (found := length()) < events:
        if found and not first:
            first, began = float(found), time.perf_counter()
        if time.monotonic() > deadline:
            raise NotMeasured(f"after {_WITHIN_S:.0f} s, {found} of {events} events have arrived")
        time.sleep(_LOOK_S)
    return (events - first) / (time.perf_counter() - began) if first else events / _LOOK_S
