"""B9: measure the memory of thousands of idle subscribers, and the delivery of one event to all of them."""

import resource
import selectors
import time
from contextlib import ExitStack, closing
from typing import NamedTuple

from bench.broker_process import broker_process, resident_bytes
from bench.wire import connect

__all__ = ["SUBSCRIBERS", "Idle", "idle_subscribers"]

SUBSCRIBERS = 5000


class Idle(NamedTuple):
    """The broker's resident memory with all subscribers (bytes), and the seconds until each has received one event."""

    memory: int
    seconds: float


def idle_subscribers() -> Idle:
    """Connect the subscribers, one connection each, and publish one event."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with broker_process("--topic", "bench") as (port, pid), ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(SUBSCRIBERS):
            connection = stack.enter_context(closing(connect(port)))
            connection.sendall(b"sub bench\n")
            connection.recv(4096)
            selector.register(connection, selectors.EVENT_READ)
        memory = resident_bytes(pid)
        out = stack.enter_context(closing(connect(port)))
        began = time.perf_counter()
        out.sendall(b'pub bench {"id":"1","msg":"to all"}\n')
        waiting = SUBSCRIBERS
        while waiting:
            for key, _ in selector.select(10):
                key.fileobj.recv(4096)  # type: ignore[union-attr]  # only sockets are registered
                selector.unregister(key.fileobj)
                waiting -= 1
        return Idle(memory, time.perf_counter() - began)
