"""The publisher as a process, the events that it published, and the changes that it should have published."""

import json
from pathlib import Path
from typing import Any

from pymongo.collection import Collection

from tests.support.paths import ROOT
from tests.support.processes import Process
from tests.support.stored import events_of
from tests.support.waiting import until
from tweetwire import StoredEvent


class Publisher(Process):
    """``python -m change_stream`` with `flags`. A restart uses the same flags."""

    def __init__(self, log_path: Path, mongo_url: str, broker: str, database: str, *flags: str) -> None:
        super().__init__(
            log_path,
            *("change_stream", "--mongo-url", mongo_url, "--broker", broker, "--database", database),
            *("--log-json", "--metrics-port", "0", *flags),
            folder=ROOT,
        )


def wait_for(broker: str, topic: str, count: int, timeout_s: float = 20.0) -> list[StoredEvent]:
    """Wait until a topic has `count` events, and return all its events."""
    until(lambda: len(events_of(broker, topic)) >= count, timeout_s, lambda: events_of(broker, topic))
    return events_of(broker, topic)


def now_token(collection: Collection[dict[str, Any]]) -> Any:
    """Return the current resume token."""
    with collection.watch() as stream:
        while stream.resume_token is None:
            stream.try_next()
        return stream.resume_token


def tokens_since(collection: Collection[dict[str, Any]], token: Any) -> list[str]:
    """Return the token of every change between `token` and now, read by a plain pymongo loop."""
    found: list[str] = []
    with collection.watch(start_after=token, max_await_time_ms=500) as stream:
        while (change := stream.try_next()) is not None:
            found.append(change["_id"]["_data"])
    return found


def tokens_of(events: list[StoredEvent]) -> list[str]:
    """Return the token in each event."""
    return [str(event.checkpoint).split("/")[4] for event in events]


def applied(events: list[StoredEvent]) -> dict[str, Any]:
    """Return the collection that results when the events of a topic are applied in order."""
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
