"""Flags and environment variables of `python -m change_stream`."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from bson import Timestamp, json_util
from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from broker.kinds import Metavar
from broker.program import ClientSettings, settings_config
from broker.units import Bytes, Seconds
from change_stream.extended_json import JsonMode
from change_stream.fields import Fields

__all__ = ["HistoryPolicy", "Settings", "SnapshotMode", "SourceSettings"]

SnapshotMode = Literal["never", "initial", "when_needed", "always"]
HistoryPolicy = Literal["fail", "resnapshot", "from_time", "now"]
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
MemberPath = Annotated[str, Metavar("COLLECTION=PATH")]
_IMAGES = {"off": None, "update_lookup": "updateLookup", "when_available": "whenAvailable", "required": "required"}


class SourceSettings(ClientSettings):
    """What is watched, and where it goes."""

    mongo_url: str = Field(
        "mongodb://127.0.0.1:27017/?replicaSet=rs0", description="MongoDB's address; it must be a replica set"
    )
    database: str = Field("rtp_sse_db", description="database that is watched")
    map: list[Annotated[str, Metavar("COLLECTION=TOPIC")]] = Field(
        ["tweets=tweets", "users=users"], description="what is watched and where it goes"
    )
    connect_timeout: Seconds = Field(
        "30s", validate_default=True, gt=0, description="how long to try for MongoDB and the broker at the start"
    )

    @field_validator("map")
    @classmethod
    def _have_names(cls, pairs: list[str], others: ValidationInfo) -> list[str]:
        for collection, topic in _dict(pairs).items():
            producer = _producer(others.data.get("database", ""), collection)
            if not _NAME.fullmatch(producer):
                raise ValueError(f"{producer!r} is no producer's name: letters, digits, _ . and -, at most 128")
            if not _NAME.fullmatch(topic):
                raise ValueError(f"{topic!r} is no topic's name: letters, digits, _ . and -, at most 128")
        return pairs

    def topics(self) -> dict[str, str]:
        """The topic of each collection."""
        return _dict(self.map)

    def producer_of(self, collection: str) -> str:
        """The name that a collection's events have at the broker."""
        return _producer(self.database, collection)


class Settings(SourceSettings):
    """Publishes every change of MongoDB collections to broker topics, each once and in order.

    Where the topics stand: python -m change_stream status
    """

    # A field called json would hide a method of pydantic's.
    model_config = settings_config("python -m change_stream") | SettingsConfigDict(cli_shortcuts={"json-mode": "json"})

    snapshot: SnapshotMode = Field(
        "never",
        description="copy the documents that are there already: never; initial: before the first change ever; "
        "when_needed: also when MongoDB's history no longer reaches back; always: at each start",
    )
    on_history_lost: HistoryPolicy = Field(
        "fail",
        description="when MongoDB's history no longer reaches back to where a topic was left: fail; resnapshot; from_time: "
        "go on with the oldest change there is; now. All but fail publish a gap event with both bounds",
    )
    start_at: Annotated[str, Metavar("TIME")] | None = Field(
        None, description="where a topic without a position begins: 2026-11-27T20:00:00Z, or oldest; without it, now"
    )
    reset: bool = Field(False, description="forget the stored positions at this start")
    json_mode: JsonMode = Field(
        "plain",
        description="how BSON becomes JSON: plain, or Extended JSON v2 in its canonical or relaxed form",
    )
    full_document: Literal["off", "update_lookup", "when_available", "required"] = Field(
        "update_lookup",
        description="the document of an update: off; update_lookup: as it is when the change is read; when_available, "
        "required: as the update left it, from the collection's post-images",
    )
    before: Literal["off", "when_available", "required"] = Field(
        "when_available", description="the document before a change, from the collection's pre-images (MongoDB 6.0)"
    )
    key: list[MemberPath] = Field(
        ["tweets=user.id_str"],
        description="member that groups an entity's events; else the _id",
    )
    followers: list[MemberPath] = Field(
        ["tweets=user.followers_count", "users=followers_count"],
        description="count whose digits make the priority; else it is 0",
    )
    include: list[MemberPath] = Field([], description="keep this member, not all of them")
    exclude: list[MemberPath] = Field([], description="leave this member out")
    rename: list[Annotated[str, Metavar("COLLECTION=PATH:NAME")]] = Field([], description="call this member NAME")
    pipeline: list[Annotated[str, Metavar("COLLECTION=FILE")]] = Field(
        [], description="aggregation stages for its changes, a JSON array"
    )
    window: int = Field(10_000, ge=1, description="events on the way to the broker that are not yet confirmed")
    window_bytes: Bytes = Field("32MiB", validate_default=True, ge=1, description="bytes of their messages, at most")
    batch_size: int = Field(1000, ge=1, le=100_000, description="changes that MongoDB sends at once, at most")
    ahead: int = Field(4000, ge=1, description="changes that are fetched ahead of their publishing, at most")
    ahead_bytes: Bytes = Field(
        "32MiB", validate_default=True, description="bytes of changes that are fetched ahead, at most"
    )
    chunk_size: int = Field(4000, ge=1, le=100_000, description="documents that a snapshot reads at once, at most")
    readers: int = Field(2, ge=1, le=32, description="chunks that a snapshot reads side by side")
    event_bytes_max: Bytes = Field(
        "1MiB",
        validate_default=True,
        ge=4096,
        description="longest line that the broker takes; what is longer goes without its documents",
    )
    heartbeat: Seconds = Field(
        "5s", validate_default=True, gt=0, description="how often a quiet collection's position is stored"
    )
    metrics_port: int = Field(9602, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")

    @field_validator("key", "followers")
    @classmethod
    def _are_pairs(cls, pairs: list[str]) -> list[str]:
        _dict(pairs)
        return pairs

    @field_validator("include", "exclude")
    @classmethod
    def _name_paths(cls, pairs: list[str]) -> list[str]:
        for pair in pairs:
            _split(pair)
        return pairs

    @field_validator("rename")
    @classmethod
    def _name_names(cls, pairs: list[str]) -> list[str]:
        for pair in pairs:
            path, colon, name = _split(pair)[1].partition(":")
            if not (path and colon and name) or "." in name:
                raise ValueError(f"{pair!r} is not COLLECTION=PATH:NAME")
        return pairs

    @field_validator("pipeline")
    @classmethod
    def _are_stages(cls, pairs: list[str]) -> list[str]:
        for file in _dict(pairs).values():
            _stages(Path(file))
        return pairs

    @field_validator("start_at")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        if text not in {None, "oldest"}:
            _time(text or "")
        return text

    def key_of(self, collection: str) -> str | None:
        """The dotted path to a collection's key, if it has one."""
        return _dict(self.key).get(collection)

    def followers_of(self, collection: str) -> str | None:
        """The dotted path to the count that makes a collection's priorities, if it has one."""
        return _dict(self.followers).get(collection)

    def fields_of(self, collection: str) -> Fields:
        """What a collection's documents keep."""
        rename = [pair.rpartition(":") for pair in _values(self.rename, collection)]
        return Fields(
            _values(self.include, collection),
            _values(self.exclude, collection),
            {path: name for path, _, name in rename},
        )

    def pipeline_of(self, collection: str) -> list[dict[str, Any]]:
        """The user's stages for a collection's changes."""
        file = _dict(self.pipeline).get(collection)
        return [] if file is None else _stages(Path(file))

    def stage(self, *, has_pre_images: bool) -> dict[str, Any]:
        """The members of `$changeStream` besides the position."""
        stage = {"fullDocument": _IMAGES[self.full_document]}
        if has_pre_images or self.before == "required":
            stage["fullDocumentBeforeChange"] = _IMAGES[self.before]
        return {name: value for name, value in stage.items() if value is not None}

    def start_time(self) -> Timestamp | Literal["oldest"] | None:
        """Where a topic without a position begins."""
        if self.start_at is None or self.start_at == "oldest":
            return None if self.start_at is None else "oldest"
        return Timestamp(int(_time(self.start_at).timestamp()), 0)


def _producer(database: str, collection: str) -> str:
    return f"cdc.{database}.{collection}"


def _split(pair: str) -> tuple[str, str]:
    left, _, right = pair.partition("=")
    if not (left and right):
        raise ValueError(f"{pair!r} is not COLLECTION=VALUE")
    return left, right


def _dict(pairs: list[str]) -> dict[str, str]:
    found = dict(_split(pair) for pair in pairs)
    if len(found) < len(pairs):
        raise ValueError("a collection is named twice")
    return found


def _values(pairs: list[str], collection: str) -> list[str]:
    return [value for name, value in map(_split, pairs) if name == collection]


def _stages(file: Path) -> list[dict[str, Any]]:
    try:
        stages = json_util.loads(file.read_text())
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{file} is no JSON: {error}") from error
    if not isinstance(stages, list) or not all(isinstance(stage, dict) and len(stage) == 1 for stage in stages):
        raise ValueError("a pipeline is a JSON array of stages, each an object with one member")
    return stages


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time; write it like 2026-11-27T20:00:00Z, or oldest") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
