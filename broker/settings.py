"""The settings of the broker, from flags and environment variables."""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from broker.data_directory import Durability
from tweetwire.runtime.kinds import (
    Bytes,
    Folder,
    Metavar,
    OptionalCount,
    OptionalFile,
    OptionalSeconds,
    OptionalUrl,
    Seconds,
)
from tweetwire.runtime.program import ProgramSettings, settings_config

__all__ = ["BrokerSettings"]


OptionalPort = Annotated[int | None, BeforeValidator(lambda given: None if given == "" else given), Metavar("PORT")]


def _origin(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.netloc or text != f"{parts.scheme}://{parts.netloc}":
        raise ValueError(f"{text!r} is not an origin; write it as a browser does, such as https://shop.example:8443")
    return text.lower()


HttpOrigin = Annotated[str, AfterValidator(_origin)]


class BrokerSettings(ProgramSettings):
    """A durable message broker that people can talk to: telnet localhost 8000."""

    model_config = settings_config("python -m broker")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on, 0 for a free one")
    data_dir: Folder = Field(Path("data/broker"), description="folder for the logs and the state")
    durability: Durability = Field(
        "synced",
        description="promise of a confirmation: synced (the disk has the event), written (the operating system has it), memory",
    )
    topic: list[str] = Field([], description="topic to create at start")
    create_topics: bool = Field(
        True,
        description="make an unknown topic when an event is published to it; with --no-create-topics, only the command create",
    )
    users: OptionalFile = Field(
        None, description="TOML file of the users that may connect; see python -m broker.users --help"
    )
    tls_cert: OptionalFile = Field(None, description="PEM file with the certificate chain; turns TLS on")
    tls_key: OptionalFile = Field(None, description="PEM file with the certificate's key")
    tls_ca: OptionalFile = Field(
        None, description="PEM file of the authority that must have signed the clients' certificates"
    )
    connections_max: int = Field(10_000, ge=1, description="maximum of open connections, TLS handshakes included")
    connections_per_address: OptionalCount = Field(
        None, ge=1, description="maximum of connections from one address (default: 1000, and no limit for this machine)"
    )
    greeting_timeout: OptionalSeconds = Field(
        None, description="time that a client has to log in (default: 10s; without users, 60s for the first command)"
    )
    recent_bytes: Bytes = Field(
        "128MiB", validate_default=True, description="memory for the newest lines of all topics"
    )
    segment_bytes: Bytes = Field(
        "64MiB", validate_default=True, description="size at which a log's file ends and the next one begins"
    )
    reserve_bytes: Bytes = Field(
        "16MiB",
        validate_default=True,
        description="disk space that is reserved for acks when the disk is full",
    )
    line_bytes_max: Bytes = Field("1MiB", validate_default=True, description="longest line that a client may send")
    waiting_bytes_max: Bytes = Field(
        "4MiB",
        validate_default=True,
        description="unsent bytes to a client above which its commands have to wait",
    )
    stalled_after: Seconds = Field(
        "60s", validate_default=True, description="time without reading after which a client is disconnected"
    )
    event_source: bool = Field(
        False, description="also serve the event source gateway; see docs/reference/event-source.md"
    )
    event_source_port: int = Field(9090, ge=0, le=65535, description="port for the event source, 0 for a free one")
    event_source_client_port: int = Field(
        9099, ge=0, le=65535, description="port for the event source's clients, 0 for a free one"
    )
    event_source_inbox: bool = Field(
        False, description="store the lines for absent clients in topics inbox.<id> until they connect"
    )
    event_source_goes_on: bool = Field(
        False,
        description="let a source continue the sequences of the previous source that ended, instead of beginning at 1",
    )
    event_source_silence: Seconds = Field(
        "30s",
        validate_default=True,
        description="time without sending after which a source is disconnected if another waits",
    )
    http_port: OptionalPort = Field(
        None, ge=0, le=65535, description="port of the HTTP gateway, 0 for a free one; without the flag, there is none"
    )
    http_allow_origin: list[HttpOrigin] = Field(
        [], description="origin of web pages that may use the HTTP gateway from a browser, such as https://shop.example"
    )
    http_allowed_host: list[str] = Field(
        [], description="name by which clients reach the HTTP gateway, besides addresses, --host and localhost"
    )
    http_body_bytes_max: Bytes = Field("4MiB", validate_default=True, description="longest body of an HTTP request")
    hold_max: int = Field(
        100_000, ge=1, description="number of held out-of-order events above which the source is read slowly"
    )
    tier: OptionalUrl = Field(
        None,
        description="object store to which closed segments are copied: s3://bucket/prefix, gs://, az:// or file:///folder",
    )
    tier_after: Seconds = Field(
        "10m",
        validate_default=True,
        gt=0,
        description="time after which the open segments are closed and copied to the tier; a restore can lose this much",
    )
    tier_verify: Literal["read", "head"] = Field(
        "read", description="how a copy in the tier is verified: read (it is read back) or head (its size is compared)"
    )
    tier_fence: Literal["refuse", "warn"] = Field(
        "refuse",
        description="consequence when another broker takes over the tier: refuse (publishes are refused) or warn",
    )
    metrics_port: int = Field(9600, ge=0, le=65535, description="port of the Prometheus metrics, 0 for none")

    @model_validator(mode="after")
    def _whole_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key must be passed together")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError("--tls-ca needs --tls-cert and --tls-key")
        return self

    @model_validator(mode="after")
    def _tier_on_disk(self) -> Self:
        if self.tier is not None and self.durability == "memory":
            raise ValueError("--tier needs logs on the disk; choose --durability synced or written")
        return self
