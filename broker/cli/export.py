"""``export``: what each subscription still has before it, with the events themselves.

The broker tells which offsets are unsettled, the log has the events. Both are asked for in pages, so neither side holds
more than a page; an event is in the result if it was unsettled when its page was asked for.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Raw, Struct
from pydantic import Field

from broker.cli.connection import Connection, command_config
from broker.cli.report import answer
from broker.errors import Refusal, StartError
from broker.program import Name
from broker.sync_client import SyncClient

__all__ = ["Export"]

PAGE: Final = 10_000
GAP: Final = 100
"""Runs of offsets with no more than this between them are read in one go."""


class _Exported(Struct):
    timestamp: int
    priority: int
    msg: Raw
    id: str


class _Read(_Exported):
    offset: int


_decode = msgspec.json.Decoder(_Read).decode


class Export(Connection):
    """Write the unsettled events (waiting, delayed or in flight) of each subscription as JSON.

    The form is {subscription: {topic: [{timestamp, priority, msg, id}]}}, by offset; timestamps are in milliseconds
    since 1970 UTC.
    """

    model_config = command_config("export")

    topic: Name | None = Field(None, description="only this topic (default: all)")
    as_: Name | None = Field(None, alias="as", description="only this subscription (default: all)")
    out: Path | None = Field(None, description="file to write, replaced when all is there (default: stdout)")

    def carry_out(self) -> None:
        """Write the view."""
        with self.connect() as client:
            chosen = self._chosen(client)
            with _written(self.out) as file:
                _write(client, chosen, file)

    def _chosen(self, client: SyncClient) -> dict[str, list[str]]:
        """Return the topics of each subscription that was asked for. Raises Refusal where what is named is not there."""
        topics = client.stats()["topics"]
        if self.topic is not None and self.topic not in topics:
            raise Refusal("unknown_topic", self.topic)
        chosen: dict[str, list[str]] = {}
        for topic, report in topics.items():
            for name in report["subscriptions"]:
                if self.topic in {None, topic} and self.as_ in {None, name}:
                    chosen.setdefault(name, []).append(topic)
        if self.as_ is not None and not chosen:
            raise Refusal("not_subscribed", f"{self.topic or 'no topic'} has a subscription {self.as_}")
        return chosen


def _write(client: SyncClient, chosen: dict[str, list[str]], file: IO[str]) -> None:
    """Write the view an event at a time, each on a line of its own."""
    file.write("{")
    for number, (name, topics) in enumerate(sorted(chosen.items())):
        file.write(f"{',' if number else ''}\n{_json(name)}:{{")
        for place, topic in enumerate(topics):
            file.write(f"{',' if place else ''}\n {_json(topic)}:[")
            for at, event in enumerate(_unsettled(client, topic, name)):
                file.write(f"{',' if at else ''}\n  {_json(event)}")
            file.write("]")
        file.write("}")
    file.write("\n}\n")


def _unsettled(client: SyncClient, topic: str, name: str) -> Iterator[_Exported]:
    start: int | None = 0
    while start is not None:
        try:
            page = answer(client.command(f"unsettled {topic} as={name} from={start} limit={PAGE}"), 3)
        except Refusal as refusal:
            if refusal.code == "not_subscribed":
                return  # It ended while others were written: nothing is left before it.
            raise
        yield from _events(client, topic, page["offsets"])
        start = page["next"]


def _events(client: SyncClient, topic: str, runs: list[tuple[int, int]]) -> Iterator[_Exported]:
    """Read the events of runs [first, last] of offsets; damaged ones are missing."""
    wanted = {offset for first, last in runs for offset in range(first, last + 1)}
    for first, last in _joined(runs):
        at = first
        while at <= last:
            lines, after = client.read_lines(topic, at, limit=last + 1 - at)
            for event in map(_decode, lines):
                if event.offset in wanted:
                    yield _Exported(event.timestamp, event.priority, event.msg, event.id)
            if after == at:
                break
            at = after


def _joined(runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield runs with the small gaps between them closed."""
    if not runs:
        return
    first, last = runs[0]
    for begin, end in runs[1:]:
        if begin - last > GAP:
            yield first, last
            first = begin
        last = end
    yield first, last


@contextmanager
def _written(path: Path | None) -> Iterator[IO[str]]:
    """Give stdout, or a file that takes the place of `path` only when it is whole. Raises StartError."""
    if path is None:
        yield sys.stdout
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        os.replace(part, path)
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}; choose another: --out") from error
    finally:
        part.unlink(missing_ok=True)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
