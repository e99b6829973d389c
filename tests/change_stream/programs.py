"""The publisher as a process, what it published, and what it should have."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pymongo.collection import Collection

from broker import StoredEvent, SyncClient

ROOT = Path(__file__).parents[2]


class Publisher:
    """``python -m change_stream`` with `flags`; starts again with the same ones."""

    def __init__(self, log_path: Path, mongo_url: str, broker: str, database: str, *flags: str) -> None:
        self.log_path = log_path
        self.command = [
            *(sys.executable, "-m", "change_stream", "--mongo-url", mongo_url, "--broker", broker),
            *("--database", database, "--log-json", "--metrics-port", "0", *flags),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        """Start it without waiting."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self.command, stderr=log, cwd=ROOT, start_new_session=True)

    def start(self, timeout_s: float = 30.0) -> None:
        """Start it and wait until it is ready."""
        began = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.launch()
        process = self._process
        assert process is not None

        def is_ready() -> bool:
            text = self.log_path.read_text()[began:]
            assert process.poll() is None, text
            return "change stream ready on" in text

        until(is_ready, timeout_s, lambda: self.log_path.read_text()[began:])

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def terminate(self, timeout_s: float = 15.0) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout_s)

    def wait(self, timeout_s: float = 40.0) -> int:
        """Wait until it ends by itself; returns the exit status."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def said(self, text: str) -> bool:
        """Whether its log has `text`."""
        return text in self.log_path.read_text()


def until(condition: Callable[[], Any], timeout_s: float = 20.0, otherwise: Callable[[], object] = lambda: "") -> None:
    """Poll until `condition` holds; fails with what `otherwise` tells."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.02)


def published(broker: str, topic: str) -> list[StoredEvent]:
    """Every event of a topic."""
    events: list[StoredEvent] = []
    with SyncClient(broker, name="test") as client:
        if topic not in {info.topic for info in client.topics()}:
            return []
        offset = 0
        while (page := client.read(topic, offset, limit=10_000)).events:
            events += page.events
            offset = page.next
    return events


def wait_for(broker: str, topic: str, count: int, timeout_s: float = 20.0) -> list[StoredEvent]:
    """Wait until a topic has `count` events, and return all it has."""
    until(lambda: len(published(broker, topic)) >= count, timeout_s, lambda: published(broker, topic))
    return published(broker, topic)


def now_token(collection: Collection[dict[str, Any]]) -> Any:
    """The resume token of this moment."""
    with collection.watch() as stream:
        while stream.resume_token is None:
            stream.try_next()
        return stream.resume_token


def tokens_since(collection: Collection[dict[str, Any]], token: Any) -> list[str]:
    """What a plain pymongo loop reads: the token of every change since `token`, up to now."""
    found: list[str] = []
    with collection.watch(start_after=token, max_await_time_ms=500) as stream:
        while (change := stream.try_next()) is not None:
            found.append(change["_id"]["_data"])
    return found


def tokens_of(events: list[StoredEvent]) -> list[str]:
    """The token that each event carries."""
    return [str(event.checkpoint).split("/")[4] for event in events]


def applied(events: list[StoredEvent]) -> dict[str, Any]:
    """The collection that results from applying a topic's events in order."""
    documents: dict[str, Any] = {}
    for event in events:
        change = json.loads(bytes(event.msg))
        if change["op"] == "delete":
            del documents[event.id]
        elif change["op"] == "update":
            document = documents[event.id]
            for path, value in change["changed"]["updated"].items():
                *parents, name = path.split(".")
                place = document
                for parent in parents:
                    place = place[parent]
                place[name] = value
            for path in change["changed"]["removed"]:
                del document[path]
        elif change["op"] in {"insert", "replace", "snapshot"}:
            documents[event.id] = change["document"]
        elif change["op"] == "drop":
            documents.clear()
    return documents
