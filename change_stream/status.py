"""``python -m change_stream status`` prints the position of each topic in MongoDB's history."""

from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
import msgspec
from bson import Timestamp
from msgspec import Struct
from pydantic import Field
from rich.console import Console
from rich.table import Table

from change_stream.cluster import Cluster
from change_stream.errors import WatchInterrupted
from change_stream.resume import ResumeRecord
from change_stream.settings import SourceSettings
from tweetwire import Client, ProducerPosition, Refusal
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import settings_config

__all__ = ["StatusSettings", "StreamStanding", "report"]

State = Literal["streaming", "copying", "history lost", "not begun", "another cluster", "unreadable"]


class StatusSettings(SourceSettings):
    """Prints the position of each topic in MongoDB's history."""

    model_config = settings_config("python -m change_stream status")

    report: Literal["text", "json"] = Field("text", description="a table, or JSON")


class StreamStanding(Struct):
    """One collection's topic: its last sequence, the UTC time of its position, and how many seconds it lags behind MongoDB.

    `copied` is the number of documents that a running snapshot has copied. `headroom_s` is how far the position is from the
    oldest change in MongoDB's oplog, None if the user may not read it.
    """

    collection: str
    topic: str
    state: State
    sequence: int | None = None
    position: str | None = None
    behind_s: int | None = None
    copied: int | None = None
    headroom_s: int | None = None


async def report(settings: StatusSettings, stop: anyio.Event) -> int:
    """Print the standings.

    Returns:
        The exit status: 1 if a topic belongs to another cluster or its record cannot be read, else 0.

    Raises:
        StartError: MongoDB does not answer, or the broker refuses a topic.
    """
    cluster, login = Cluster.at(settings.mongo_url), settings.login()
    async with cluster.mongo, login.client("status", connect_timeout_s=settings.connect_timeout) as client:
        await cluster.connect(settings.connect_timeout)
        now, oldest = await _time(cluster.now), await _time(cluster.oldest)
        standings = []
        for collection, topic in settings.topics().items():
            try:
                last = await _last(client, topic, settings.producer_of(collection))
            except Refusal as refusal:
                raise StartError(f"the broker refuses topic {topic}: {login.reason(refusal)}") from refusal
            standings.append(standing(collection, topic, last, cluster, now=now, oldest=oldest))
    if settings.report == "json":
        print(msgspec.json.encode(standings).decode())
    else:
        Console().print(_table(standings))
    return int(any(one.state in {"another cluster", "unreadable"} for one in standings))


def standing(
    collection: str,
    topic: str,
    last: ProducerPosition | None,
    cluster: Cluster,
    *,
    now: Timestamp | None,
    oldest: Timestamp | None,
) -> StreamStanding:
    """Return the standing of a topic from its producer's last position.

    `now` is the cluster's time, `oldest` that of the oldest change in the oplog; each is None if it is unknown.
    """
    if last is None or not last.checkpoint:
        return StreamStanding(collection, topic, "not begun")
    try:
        record = ResumeRecord.parse(last.checkpoint)
    except ValueError:
        return StreamStanding(collection, topic, "unreadable", last.sequence)
    if not cluster.is_named(record.cluster):
        return StreamStanding(collection, topic, "another cluster", last.sequence)
    time = record.position.time
    state: State = "streaming" if record.copy is None else "copying"
    return StreamStanding(
        collection,
        topic,
        "history lost" if record.is_lost else state,
        last.sequence,
        f"{time.as_datetime():%Y-%m-%dT%H:%M:%SZ}",
        None if now is None else max(0, now.time - time.time),
        None if record.copy is None else record.copy.documents,
        None if oldest is None else max(0, time.time - oldest.time),
    )


async def _last(client: Client, topic: str, producer: str) -> ProducerPosition | None:
    try:
        return await client.last(topic, producer)
    except Refusal as refusal:
        if refusal.code == "unknown_topic":
            return None
        raise


async def _time(ask: Callable[[], Awaitable[Timestamp | None]]) -> Timestamp | None:
    try:
        return await ask()
    except WatchInterrupted:
        return None


def _table(standings: list[StreamStanding]) -> Table:
    table = Table("collection", "topic", "state", "sequence", "position", "behind", "copied", "headroom")
    for one in standings:
        behind = "" if one.behind_s is None else f"{one.behind_s} s"
        table.add_row(
            one.collection,
            one.topic,
            one.state,
            str(one.sequence or ""),
            one.position or "",
            behind,
            str(one.copied or ""),
            "" if one.headroom_s is None else f"{one.headroom_s} s",
        )
    return table
