"""The broker's settings."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from broker.data_directory import Durability
from broker.kinds import Folder, OptionalFile
from broker.program import ProgramSettings, settings_config
from broker.units import Bytes, Seconds

__all__ = ["BrokerSettings"]


class BrokerSettings(ProgramSettings):
    """A durable message broker that people can talk to: telnet localhost 8000."""

    model_config = settings_config("python -m broker")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on, 0 for a free one")
    data_dir: Folder = Field(Path("data/broker"), description="folder of the logs and the state")
    durability: Durability = Field(
        "synced",
        description="what a confirmation promises: synced (the disk has it), written (the system has it), memory",
    )
    topic: list[str] = Field([], description="topic to make at start")
    users: OptionalFile = Field(None, description="TOML file of those who may connect; see python -m broker.users")
    tls_cert: OptionalFile = Field(None, description="PEM file with the certificate chain; makes the port TLS")
    tls_key: OptionalFile = Field(None, description="PEM file with the certificate's key")
    tls_ca: OptionalFile = Field(None, description="PEM file of the authority that clients' certificates must be from")
    connections_max: int = Field(10_000, ge=1, description="most connections at once")
    recent_bytes: Bytes = Field(
        "128MiB", validate_default=True, description="newest lines of all topics that stay in memory"
    )
    segment_bytes: Bytes = Field(
        "64MiB", validate_default=True, description="where a log's file ends and the next one begins"
    )
    reserve_bytes: Bytes = Field(
        "16MiB",
        validate_default=True,
        description="room on the disk that is kept for acks when it is full",
    )
    line_bytes_max: Bytes = Field("1MiB", validate_default=True, description="longest line that is taken")
    waiting_bytes_max: Bytes = Field(
        "4MiB",
        validate_default=True,
        description="most that waits to be sent to a client before no more is read from it",
    )
    stalled_after: Seconds = Field(
        "60s", validate_default=True, description="how long a client may take nothing before it is cut off"
    )
    event_source: bool = Field(False, description="serve the event source gateway, too; see docs/event_source.md")
    event_source_port: int = Field(9090, ge=0, le=65535, description="port for the event source, 0 for a free one")
    event_source_client_port: int = Field(
        9099, ge=0, le=65535, description="port for the event source's clients, 0 for a free one"
    )
    event_source_inbox: bool = Field(
        False, description="keep what comes for absent clients, in topics inbox.<id>, until they come"
    )
    event_source_goes_on: bool = Field(
        False, description="a source after one that has ended goes on with its sequences, instead of beginning at 1"
    )
    hold_max: int = Field(
        100_000, ge=1, description="out-of-order events of the source held at full speed; above, it is read slowly"
    )
    metrics_port: int = Field(9600, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")

    @model_validator(mode="after")
    def _whole_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key go together")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError("--tls-ca needs --tls-cert and --tls-key")
        return self
