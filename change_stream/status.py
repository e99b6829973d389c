"""`python -m change_stream status`: where each topic stands, asked of the broker and of MongoDB."""

from typing import Literal

import anyio
import msgspec
from bson import Timestamp
from msgspec import Struct
from pydantic import Field
from rich.console import Console
from rich.table import Table

from broker import Client, ProducerPosition, Refusal
from broker.errors import StartError
from broker.program import settings_config
from change_stream.cluster import Cluster
from change_stream.errors import WatchInterrupted
from change_stream.resume import ResumeRecord
from change_stream.settings import SourceSettings

__all__ = ["Standing", "StatusSettings", "report"]

State = Literal["streaming", "copying", "not begun", "another cluster", "unreadable"]


class StatusSettings(SourceSettings):
    """Tells where each topic stands in MongoDB's history."""

    model_config = settings_config("python -m change_stream status")

    report: Literal["text", "json"] = Field("text", description="a table, or JSON")


class Standing(Struct):
    """One collection's topic: its last sequence, the UTC time of its position, and the seconds it is behind MongoDB."""

    collection: str
    topic: str
    state: State
    sequence: int | None = None
    position: str | None = None
    behind_s: int | None = None


async def report(settings: StatusSettings, stop: anyio.Event) -> int:
    """Print the standings. Returns 1 where a topic belongs to another cluster or its record cannot be read.

    Raises StartError where the broker refuses.
    """
    cluster, login = Cluster.at(settings.mongo_url), settings.login()
    async with cluster.mongo, login.client("status", connect_timeout_s=settings.connect_timeout) as client:
        await cluster.connect(settings.connect_timeout)
        now = await _now(cluster)
        standings = []
        for collection, topic in settings.topics().items():
            try:
                last = await _last(client, topic, settings.producer_of(collection))
            except Refusal as refusal:
                raise StartError(f"the broker refuses topic {topic}: {login.reason(refusal)}") from refusal
            standings.append(standing(collection, topic, last, cluster.id, now))
    if settings.report == "json":
        print(msgspec.json.encode(standings).decode())
    else:
        Console().print(_table(standings))
    return int(any(one.state in {"another cluster", "unreadable"} for one in standings))


def standing(
    collection: str, topic: str, last: ProducerPosition | None, cluster: str, now: Timestamp | None
) -> Standing:
    """Say where a topic stands whose producer is at `last`, `now` being the cluster's time."""
    if last is None or not last.checkpoint:
        return Standing(collection, topic, "not begun")
    try:
        record = ResumeRecord.parse(last.checkpoint)
    except ValueError:
        return Standing(collection, topic, "unreadable", last.sequence)
    if record.cluster != cluster:
        return Standing(collection, topic, "another cluster", last.sequence)
    time = record.position.time
    return Standing(
        collection,
        topic,
        "streaming" if record.copied is None else "copying",
        last.sequence,
        f"{time.as_datetime():%Y-%m-%dT%H:%M:%SZ}",
        None if now is None else max(0, now.time - time.time),
    )


async def _last(client: Client, topic: str, producer: str) -> ProducerPosition | None:
    try:
        return await client.last(topic, producer)
    except Refusal as refusal:
        if refusal.code == "unknown_topic":
            return None
        raise


async def _now(cluster: Cluster) -> Timestamp | None:
    try:
        return await cluster.now()
    except WatchInterrupted:
        return None


def _table(standings: list[Standing]) -> Table:
    table = Table("collection", "topic", "state", "sequence", "position", "behind")
    for one in standings:
        behind = "" if one.behind_s is None else f"{one.behind_s} s"
        table.add_row(one.collection, one.topic, one.state, str(one.sequence or ""), one.position or "", behind)
    return table
