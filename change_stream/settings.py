"""Flags and environment variables of `python -m change_stream`."""

import re
from typing import Any, Literal

from pydantic import Field, field_validator

from broker.program import ProgramSettings, settings_config
from broker.units import Bytes, Seconds
from change_stream.extended_json import JsonMode

__all__ = ["Settings", "SnapshotMode"]

SnapshotMode = Literal["never", "initial", "when_needed", "always"]
_TOPIC = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")


class Settings(ProgramSettings):
    """Publishes every change of MongoDB collections to broker topics, each once and in order."""

    model_config = settings_config("python -m change_stream")

    mongo_url: str = Field(
        "mongodb://127.0.0.1:27017/?replicaSet=rs0", description="MongoDB's address; it must be a replica set"
    )
    database: str = Field("rtp_sse_db", description="database that is watched")
    map: list[str] = Field(
        ["tweets=tweets", "users=users"], description="COLLECTION=TOPIC: what is watched and where it goes (repeatable)"
    )
    broker: str = Field("127.0.0.1:8000", description="HOST:PORT of the broker")
    snapshot: SnapshotMode = Field(
        "never",
        description="copy the documents that are there already: never; initial: before the first change ever; "
        "when_needed: also when MongoDB's history no longer reaches back; always: at each start",
    )
    json_mode: JsonMode = Field(
        "plain",
        alias="json",
        description="how BSON becomes JSON: plain, or Extended JSON v2 in its canonical or relaxed form",
    )
    key: list[str] = Field(
        ["tweets=user.id_str"],
        description="COLLECTION=PATH: member that groups an entity's events; else the _id (repeatable)",
    )
    followers: list[str] = Field(
        ["tweets=user.followers_count", "users=followers_count"],
        description="COLLECTION=PATH: count whose digits make the priority; else it is 0 (repeatable)",
    )
    window: int = Field(10_000, ge=1, description="events on the way to the broker that are not yet confirmed")
    batch_size: int = Field(1000, ge=1, le=100_000, description="changes that MongoDB sends at once, at most")
    ahead: int = Field(4000, ge=1, description="changes that are fetched ahead of their publishing, at most")
    ahead_bytes: Bytes = Field(
        "32MiB", validate_default=True, description="bytes of changes that are fetched ahead, at most"
    )
    heartbeat: Seconds = Field(
        "5s", validate_default=True, gt=0, description="how often a quiet collection's position is stored"
    )
    connect_timeout: Seconds = Field(
        "30s", validate_default=True, gt=0, description="how long to try for MongoDB and the broker at the start"
    )

    @field_validator("map", "key", "followers")
    @classmethod
    def _are_pairs(cls, pairs: list[str]) -> list[str]:
        for pair in pairs:
            left, equals, right = pair.partition("=")
            if not (left and equals and right):
                raise ValueError(f"{pair!r} is not COLLECTION=VALUE")
        collections = [pair.partition("=")[0] for pair in pairs]
        if len(set(collections)) < len(collections):
            raise ValueError("a collection is named twice")
        return pairs

    @field_validator("map")
    @classmethod
    def _name_topics(cls, pairs: list[str]) -> list[str]:
        for pair in pairs:
            topic = pair.partition("=")[2]
            if not _TOPIC.fullmatch(topic):
                raise ValueError(f"{topic!r} is no topic's name: letters, digits, _ . and -, at most 128")
        return pairs

    def topics(self) -> dict[str, str]:
        """The topic of each collection."""
        return _dict(self.map)

    def key_of(self, collection: str) -> str | None:
        """The dotted path to a collection's key, if it has one."""
        return _dict(self.key).get(collection)

    def followers_of(self, collection: str) -> str | None:
        """The dotted path to the count that makes a collection's priorities, if it has one."""
        return _dict(self.followers).get(collection)

    def stage(self) -> dict[str, Any]:
        """The members of `$changeStream` besides the position."""
        return {"fullDocument": "updateLookup"}


def _dict(pairs: list[str]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in pairs)
