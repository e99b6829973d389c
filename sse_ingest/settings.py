"""The settings of the ingester, from flags, environment variables and defaults."""

import os
from pathlib import Path

from pydantic import AliasChoices, Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from sse_ingest.scoring import ScorerName
from tweetwire.runtime.kinds import Address, Bytes, Seconds
from tweetwire.runtime.program import ClientSettings, settings_config

__all__ = ["IngestSettings"]


class IngestSettings(ClientSettings):
    """Reads tweets from event streams, scores them in worker processes and writes them to MongoDB.

    `python -m sse_ingest report` writes a page about the stored tweets.
    """

    # The prefix must apply to aliases too; otherwise a shell's RATE or LOOP would be read.
    model_config = settings_config("python -m sse_ingest") | SettingsConfigDict(env_prefix_target="all")

    metrics_port: int = Field(9601, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")
    source: list[str] = Field(
        [],
        description="source of tweets: http://HOST:4000/tweets/1 (rtp-server), mastodon:INSTANCE, "
        "wikimedia, replay:FILE (JSON Lines of tweets, or .sse; replay-mastodon:FILE of statuses, "
        "replay-wikimedia:FILE of changes)",
    )
    mongo_url: str = Field("mongodb://127.0.0.1:27017", description="address of a MongoDB replica set")
    database: str = Field("rtp_sse_db", min_length=1, description="name of the database")
    broker: Address = Field("", description="address of the broker that receives statistics (default: no statistics)")
    host: str = Field("127.0.0.1", description="address of the telnet port")
    port: int = Field(8080, ge=0, le=65535, description="telnet port for people, 0 for any free one")
    autostart: bool = Field(False, description="start ingesting without waiting for the command twitter")
    until_end: bool = Field(
        False, description="end once every source has ended and everything is written; implies --autostart"
    )

    batch_size: int = Field(200, ge=1, le=10_000, description="tweets in one write to MongoDB, at most")
    flush_every: Seconds = Field(
        "3s", validate_default=True, gt=0, description="time a tweet waits for its batch to fill, at most"
    )
    inbox_size: int = Field(
        2000, ge=1, description="events of one source that wait for a worker, at most; large ones up to 64 MiB"
    )
    workers_min: int = Field(1, ge=1, description="worker processes of a source, at least")
    workers_max: int = Field(
        os.cpu_count() or 1,
        ge=1,
        description="worker processes of a source, at most; the default is the number of cores",
    )
    worker_events: int = Field(200, ge=1, le=10_000, description="events given to a worker at once, at most")
    worker_timeout: Seconds = Field(
        "30s", validate_default=True, gt=0, description="time after which a worker that does not reply is replaced"
    )
    scorer: ScorerName = Field(
        "vader",
        description="sentiment of a text's first 5,000 characters: vaderSentiment, or the mean of the words' emotion values",
    )
    emotion_values: str = Field("", description="URL or FILE of lines 'word TAB score', for --scorer lexicon")

    replay_rate: float = Field(
        0.0,
        ge=0,
        validation_alias=AliasChoices("replay_rate", "rate"),
        description="events a second of a replay, 0 for as fast as possible",
    )
    replay_loop: bool = Field(
        False, validation_alias=AliasChoices("replay_loop", "loop"), description="restart a replay when it ends"
    )
    event_bytes_max: Bytes = Field(
        "1MiB", validate_default=True, gt=0, description="size of an event beyond which it is skipped"
    )
    silence: Seconds = Field(
        "60s",
        validate_default=True,
        gt=0,
        description="time without a byte, or without a response, after which a stream counts as lost",
    )
    reconnect_pause: Seconds = Field(
        "1s", validate_default=True, gt=0, description="first pause before connecting again, doubled each time"
    )
    reconnect_pause_max: Seconds = Field(
        "30s", validate_default=True, gt=0, description="longest pause before connecting again"
    )
    mastodon_token: SecretStr = Field(
        SecretStr(""), description="access token for instances that require one; it is sent to the instance's host only"
    )

    stats_every: Seconds = Field(
        "5s", validate_default=True, gt=0, description="time between two events on the topic logger_stats"
    )
    hashtags_file: Path = Field(Path("hashtag_stats.json"), description="file that hashtag counts are written to")
    mongo_timeout: Seconds = Field(
        "10s", validate_default=True, gt=0, description="time to wait for MongoDB, at the start and in each request"
    )
    stop_within: Seconds = Field(
        "10s", validate_default=True, gt=0, description="time to write what is in memory after a signal"
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "IngestSettings":
        if self.workers_min > self.workers_max:
            raise ValueError(f"--workers-min {self.workers_min} is more than --workers-max {self.workers_max}")
        if self.scorer == "lexicon" and not self.emotion_values:
            raise ValueError("--scorer lexicon needs --emotion-values")
        return self
