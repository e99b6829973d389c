"""Run one task on a peer (a broker of another project): one process publishes, and another consumes and acknowledges."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.programs import folder
from demo.ports import free_port, is_listened_on
from tweetwire.runtime.launching import ProgramProcess

__all__ = ["Consumed", "PeerBroker", "PeerTask", "server"]


@dataclass(frozen=True)
class PeerTask:
    """The task to send `events` messages of `size` bytes through the server on `port` of this machine."""

    port: int
    events: int
    size: int

    @property
    def body(self) -> bytes:
        """The content of every message."""
        return b"x" * self.size


@dataclass
class Consumed:
    """Counts received messages; the clock runs from the first message to the last acknowledgement."""

    wanted: int
    received: int = 0
    began: float = 0.0

    def note(self, count: int) -> bool:
        """Count `count` messages. Returns whether these were the last."""
        self.began = self.began or time.perf_counter()
        self.received += count
        return self.received >= self.wanted

    def rate(self) -> float:
        """Return the messages a second."""
        return self.received / (time.perf_counter() - self.began)


@dataclass(frozen=True)
class PeerBroker:
    """A broker to compare with: its `program`, and what its confirmations promise with the settings used."""

    name: str
    program: str
    promise: str
    start: Callable[[Path, int], "Iterator[None]"]
    prepare: Callable[[PeerTask], None]
    publish: Callable[[PeerTask], None]
    consume: Callable[[PeerTask], float]

    @property
    def is_installed(self) -> bool:
        """Whether the server is installed on this machine."""
        return shutil.which(self.program, path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/lib/rabbitmq/bin") is not None

    def rate(self, events: int, size: int) -> float:
        """Return the messages a second, from the first received to the last acknowledged, while the publisher still sends."""
        port = free_port()
        task = PeerTask(port, events, size)
        with folder() as home, contextmanager(self.start)(home, port):
            self.prepare(task)
            publisher = get_context("spawn").Process(target=self.publish, args=(task,), daemon=True)
            publisher.start()
            try:
                return self.consume(task)
            finally:
                publisher.join(30)
                publisher.kill()


def server(log: Path, port: int, *command: object, environment: Mapping[str, str] | None = None) -> ProgramProcess:
    """Return a server that runs until its block ends; it is ready when its port answers."""
    return ProgramProcess(list(map(str, command)), log, find_address=partial(_answering, port), environment=environment)


def _answering(port: int) -> str | None:
    return f"127.0.0.1:{port}" if is_listened_on(port) else None
