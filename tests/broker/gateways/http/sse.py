"""A reader of Server-Sent Events, for tests."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

__all__ = ["Sent", "following"]


class Sent(NamedTuple):
    """One event of a stream: its id, its name, and its data as JSON."""

    id: str
    name: str
    data: Any


@contextmanager
def following(client: httpx.Client, path: str, headers: dict[str, str] | None = None) -> Iterator[Iterator[Sent]]:
    """Open an event stream, and yield its events."""
    with client.stream("GET", path, headers=headers or {}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[Sent]:
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Sent(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}
