"""The bridge as a process, and the events at both of its ends."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.processes import Process
from tests.support.redis_servers import RedisServer
from tests.support.stored import events_of
from tests.support.waiting import until
from tweetwire import Event, StoredEvent, SyncClient
from tweetwire.runtime.launching import module_argv

__all__ = ["Bridge", "Entry", "entries", "publish", "verified", "wait_for_carried", "wait_for_entries"]

Entry = dict[str, str]


class Bridge(Process):
    """``python -m bridge`` with `flags`. A restart uses the same flags."""

    def __init__(self, log_path: Path, broker: str, *flags: str) -> None:
        super().__init__(
            log_path, "bridge", "--broker", broker, "--log-json", "--metrics-port", "0", *flags, folder=ROOT
        )


def publish(broker: str, topic: str, events: Sequence[Event]) -> None:
    """Publish events, and return once they are stored."""
    with SyncClient(broker, name="test") as client:
        client.publish_many(topic, events)


def wait_for_carried(broker: str, topic: str, count: int, timeout_s: float = 60) -> list[StoredEvent]:
    """Wait until a topic has `count` events, and return all its events."""
    until(lambda: len(events_of(broker, topic)) >= count, timeout_s, lambda: len(events_of(broker, topic)), 0.2)
    return events_of(broker, topic)


def entries(server: RedisServer, stream: str) -> list[Entry]:
    """Return the entries of a stream in their order, read with XRANGE and nothing of the bridge."""
    with server.client() as client:
        return [{name.decode(): text.decode() for name, text in fields.items()} for _, fields in client.xrange(stream)]


def wait_for_entries(server: RedisServer, stream: str, count: int, timeout_s: float = 60) -> list[Entry]:
    """Wait until a stream has `count` entries, and return all of them."""

    def length() -> Any:
        with server.client() as client:
            return client.xlen(stream)

    until(lambda: length() >= count, timeout_s, length)
    return entries(server, stream)


def verified(broker: str, *routes: str) -> str:
    """Return the output of ``python -m bridge verify``. Fails unless every copy is clean."""
    words = module_argv("bridge", "verify", *routes, "--broker", broker)
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
