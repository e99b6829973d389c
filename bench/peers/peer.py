"""What is measured of a peer: publish, deliver, acknowledge, one publisher and one consumer, each a process."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from bench.programs import folder
from demo.ports import free_port

__all__ = ["Consumed", "Peer", "Task", "server"]

_START_S = 60.0


@dataclass(frozen=True)
class Task:
    """`events` messages of `size` bytes through the server on `port` of this machine."""

    port: int
    events: int
    size: int

    @property
    def body(self) -> bytes:
        """What every message holds."""
        return b"x" * self.size


@dataclass
class Consumed:
    """Counts what has come; the clock runs from the first message to the last acknowledgement."""

    wanted: int
    received: int = 0
    began: float = 0.0

    def note(self, count: int) -> bool:
        """Take note of `count` messages; returns whether these were the last."""
        self.began = self.began or time.perf_counter()
        self.received += count
        return self.received >= self.wanted

    def rate(self) -> float:
        """Messages a second."""
        return self.received / (time.perf_counter() - self.began)


@dataclass(frozen=True)
class Peer:
    """A broker to compare with: the `program` it needs, and what its confirmation promises with the settings used."""

    name: str
    program: str
    promise: str
    start: Callable[[Path, int], "Iterator[None]"]
    prepare: Callable[[Task], None]
    publish: Callable[[Task], None]
    consume: Callable[[Task], float]

    @property
    def is_installed(self) -> bool:
        """Whether its server is on this machine."""
        return shutil.which(self.program, path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/lib/rabbitmq/bin") is not None

    def rate(self, events: int, size: int) -> float:
        """Messages a second from the first received to the last acknowledged, the publisher going on meanwhile."""
        port = free_port()
        task = Task(port, events, size)
        with folder() as home, contextmanager(self.start)(home, port):
            self.prepare(task)
            publisher = get_context("spawn").Process(target=self.publish, args=(task,), daemon=True)
            publisher.start()
            try:
                return self.consume(task)
            finally:
                publisher.join(30)
                publisher.kill()


@contextmanager
def server(log: Path, port: int, *command: object, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a server until the block ends; it is ready when its port answers. Raises RuntimeError with its log."""
    with log.open("wb") as output:
        process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output, env=environment)
    with process:
        try:
            _wait_for(port, process, log)
            yield
        finally:
            process.terminate()


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text()[-2000:]}")
