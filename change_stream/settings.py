"""Flags and environment variables of `python -m change_stream`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from bson import Timestamp
from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from change_stream.extended_json import JsonMode
from change_stream.fields import Fields
from change_stream.masks import mask_named
from change_stream.pairs import (
    by_collection,
    check_database,
    check_topic,
    producer_name,
    split_map,
    split_pair,
    values_of,
)
from change_stream.stages import read_query, read_stages
from tweetwire.runtime.kinds import Bytes, Metavar, Seconds
from tweetwire.runtime.program import ClientSettings, settings_config

__all__ = ["ChangeStreamSettings", "HistoryPolicy", "SnapshotMode", "SourceSettings"]

SnapshotMode = Literal["never", "initial", "when_needed", "always", "only"]
HistoryPolicy = Literal["fail", "resnapshot", "from_time", "now"]
CollectionFile = Annotated[str, Metavar("COLLECTION=FILE")]
MemberPath = Annotated[str, Metavar("COLLECTION=PATH")]
_IMAGES = {"off": None, "update_lookup": "updateLookup", "when_available": "whenAvailable", "required": "required"}
_OF_COLLECTIONS = frozenset({"key", "followers", "include", "exclude", "rename", "mask", "pipeline", "snapshot_filter"})


class SourceSettings(ClientSettings):
    """The watched database and collections, and the topic of each."""

    mongo_url: str = Field("mongodb://127.0.0.1:27017/?replicaSet=rs0", description="address of a MongoDB replica set")
    database: Annotated[str, AfterValidator(check_database)] = Field(
        "rtp_sse_db", description="database that is watched"
    )
    map: list[Annotated[str, Metavar("COLLECTION=TOPIC")]] = Field(
        ["tweets=tweets", "users=users"], description="collection to watch and the topic of its events"
    )
    connect_timeout: Seconds = Field(
        "30s", validate_default=True, gt=0, description="how long to try to reach MongoDB and the broker at the start"
    )

    @field_validator("map")
    @classmethod
    def _have_names(cls, pairs: list[str]) -> list[str]:
        for topic in by_collection(map(split_map, pairs)).values():
            check_topic(topic)
        return pairs

    def topics(self) -> dict[str, str]:
        """Return the topic of each collection."""
        return by_collection(map(split_map, self.map))

    def producer_of(self, collection: str) -> str:
        """Return the name of the producer of a collection's events."""
        return producer_name(self.database, collection)


class ChangeStreamSettings(SourceSettings):
    """Publishes every change of MongoDB collections to broker topics, each once and in order.

    To see the position of each topic: python -m change_stream status
    """

    # A field called json would hide a method of pydantic's BaseModel.
    model_config = settings_config("python -m change_stream") | SettingsConfigDict(cli_shortcuts={"json-mode": "json"})

    snapshot: SnapshotMode = Field(
        "never",
        description="copy the existing documents (not of a capped collection): never; initial: before the first change; "
        "when_needed: also when MongoDB's history no longer reaches back; always: at each start; only: copy at this start, "
        "and end",
    )
    on_history_lost: HistoryPolicy = Field(
        "fail",
        description="when MongoDB's history no longer reaches back to the topic's position, or another collection is "
        "renamed to the watched name: fail; resnapshot; from_time: continue with the oldest change there is; now: continue "
        "with the next change. All except fail publish a gap event with both bounds",
    )
    start_at: Annotated[str, Metavar("TIME")] | None = Field(
        None, description="where a topic without a position begins: 2026-11-27T20:00:00Z, or oldest; default: now"
    )
    reset: bool = Field(False, description="forget the stored positions at this start, and publish a gap event")
    adopt: bool = Field(
        False,
        description="continue the positions of another MongoDB cluster, of which this one is a copy, by their time",
    )
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
        description="member that groups an entity's events; the _id if none is given or the document has no such member",
    )
    followers: list[MemberPath] = Field(
        ["tweets=user.followers_count", "users=followers_count"],
        description="count whose digits make the priority; without one, the priority is 0",
    )
    include: list[MemberPath] = Field([], description="keep only this member and other included ones")
    exclude: list[MemberPath] = Field([], description="leave this member out, wherever it might be")
    rename: list[Annotated[str, Metavar("COLLECTION=PATH:NAME")]] = Field([], description="rename this member to NAME")
    pipeline: list[CollectionFile] = Field(
        [], description="file with aggregation stages for the collection's changes, a JSON array"
    )
    snapshot_filter: list[CollectionFile] = Field(
        [],
        description="file with a query, a JSON object: only the documents that match are copied; needed where a snapshot "
        "meets --pipeline, which filters changes only; {} copies all",
    )
    mask: list[Annotated[str, Metavar("COLLECTION=PATH:HOW")]] = Field(
        [],
        description="replace the values of this member: sha256 (of the value), null, or last4 (the last four characters)",
    )
    rejected: Literal["raw", "digest"] = Field(
        "raw",
        description="the part of a change that rejected_changes keeps if it cannot become an event: raw: its bytes; digest: "
        "only their SHA-256",
    )
    window: int = Field(10_000, ge=1, description="events sent to the broker and not yet confirmed, at most")
    window_bytes: Bytes = Field("32MiB", validate_default=True, ge=1, description="bytes of their messages, at most")
    batch_size: int = Field(1000, ge=1, le=100_000, description="changes in one reply of MongoDB, at most")
    ahead: int = Field(4000, ge=1, description="changes fetched and not yet published, at most")
    ahead_bytes: Bytes = Field(
        "32MiB", validate_default=True, description="bytes of changes fetched and not yet published, at most"
    )
    chunk_size: int = Field(4000, ge=1, le=100_000, description="documents in one chunk of a snapshot, at most")
    readers: int = Field(2, ge=1, le=32, description="chunks that a snapshot reads in parallel")
    event_bytes_max: Bytes = Field(
        "1MiB",
        validate_default=True,
        ge=4096,
        description="longest line that the broker accepts; a longer event is published without its documents",
    )
    heartbeat: Seconds = Field(
        "5s", validate_default=True, gt=0, description="how often a quiet collection's position is stored"
    )
    metrics_port: int = Field(9602, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")

    @field_validator("key", "followers")
    @classmethod
    def _are_pairs(cls, pairs: list[str]) -> list[str]:
        by_collection(map(split_pair, pairs))
        return pairs

    @field_validator("include", "exclude")
    @classmethod
    def _name_paths(cls, pairs: list[str]) -> list[str]:
        for pair in pairs:
            split_pair(pair)
        return pairs

    @field_validator("exclude", "mask")
    @classmethod
    def _keep_the_id(cls, pairs: list[str]) -> list[str]:
        for pair in pairs:
            if split_pair(pair)[1].partition(":")[0].split(".")[0] == "_id":
                raise ValueError(f"{pair!r}: the _id is the event's id, so it cannot be left out or masked")
        return pairs

    @field_validator("mask")
    @classmethod
    def _name_masks(cls, pairs: list[str]) -> list[str]:
        for pair in pairs:
            path, colon, name = split_pair(pair)[1].rpartition(":")
            if not (path and colon):
                raise ValueError(f"{pair!r} is not COLLECTION=PATH:HOW")
            mask_named(name)
        return pairs

    @field_validator("rename")
    @classmethod
    def _name_names(cls, pairs: list[str]) -> list[str]:
        for pair in pairs:
            path, colon, name = split_pair(pair)[1].partition(":")
            if not (path and colon and name) or "." in name:
                raise ValueError(f"{pair!r} is not COLLECTION=PATH:NAME")
        return pairs

    @field_validator("pipeline")
    @classmethod
    def _are_stages(cls, pairs: list[str]) -> list[str]:
        for file in by_collection(map(split_pair, pairs)).values():
            read_stages(Path(file))
        return pairs

    @field_validator("snapshot_filter")
    @classmethod
    def _are_queries(cls, pairs: list[str]) -> list[str]:
        for file in by_collection(map(split_pair, pairs)).values():
            read_query(Path(file))
        return pairs

    @field_validator("start_at")
    @classmethod
    def _is_a_time(cls, text: str | None) -> str | None:
        if text not in {None, "oldest"}:
            _time(text or "")
        return text

    @model_validator(mode="after")
    def _fit_the_map(self) -> Self:
        for flag in _OF_COLLECTIONS & self.model_fields_set:
            for pair in getattr(self, flag):
                if split_pair(pair)[0] not in self.topics():
                    name = flag.replace("_", "-")
                    raise ValueError(f"--{name} {pair}: --map has no collection {split_pair(pair)[0]}")
        for collection in self.topics():
            self._check_copy(collection)
            fields, key = self.fields_of(collection), self.key_of(collection)
            if key and "key" in self.model_fields_set and not fields.keeps(key):
                raise ValueError(
                    f"--key {collection}={key} is left out by --include or --exclude, and each event has its key; "
                    "keep that member, or choose another key"
                )
        return self

    def _check_copy(self, collection: str) -> None:
        may_copy = self.snapshot != "never" or self.on_history_lost == "resnapshot"
        if may_copy and self.pipeline_of(collection) and self.filter_of(collection) is None:
            raise ValueError(
                f"--pipeline {collection}=… filters the changes and not the copy; give --snapshot-filter {collection}=FILE "
                "with the same condition on documents ({} copies all), or --snapshot never"
            )

    def key_of(self, collection: str) -> str | None:
        """Return the dotted path to a collection's key, None if it has none."""
        return by_collection(map(split_pair, self.key)).get(collection)

    def followers_of(self, collection: str) -> str | None:
        """Return the dotted path to the count that gives a collection's priorities, None if it has none."""
        return by_collection(map(split_pair, self.followers)).get(collection)

    def fields_of(self, collection: str) -> Fields:
        """Return the members that a collection's documents keep."""
        rename = [pair.rpartition(":") for pair in values_of(self.rename, collection)]
        return Fields(
            values_of(self.include, collection),
            values_of(self.exclude, collection),
            {path: name for path, _, name in rename},
            {
                path: mask_named(name)
                for path, _, name in (pair.rpartition(":") for pair in values_of(self.mask, collection))
            },
        )

    def pipeline_of(self, collection: str) -> list[dict[str, Any]]:
        """Return the user's stages for a collection's changes."""
        file = by_collection(map(split_pair, self.pipeline)).get(collection)
        return [] if file is None else read_stages(Path(file))

    def filter_of(self, collection: str) -> dict[str, Any] | None:
        """Return the query for the documents to copy, None if there is none."""
        file = by_collection(map(split_pair, self.snapshot_filter)).get(collection)
        return None if file is None else read_query(Path(file))

    def stage(self, *, has_pre_images: bool) -> dict[str, Any]:
        """Return the members of the stage `$changeStream`, except the position."""
        stage = {"fullDocument": _IMAGES[self.full_document]}
        if has_pre_images or self.before == "required":
            stage["fullDocumentBeforeChange"] = _IMAGES[self.before]
        return {name: value for name, value in stage.items() if value is not None}

    def start_time(self) -> Timestamp | Literal["oldest"] | None:
        """Return the time at which a topic without a position begins, None for now."""
        if self.start_at is None or self.start_at == "oldest":
            return None if self.start_at is None else "oldest"
        return Timestamp(int(_time(self.start_at).timestamp()), 0)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write it like 2026-11-27T20:00:00Z, or oldest") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
