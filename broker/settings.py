"""The broker's settings."""

from pathlib import Path

from pydantic import Field

from broker.program import ProgramSettings, settings_config
from broker.server import Durability
from broker.units import Bytes

__all__ = ["BrokerSettings"]


class BrokerSettings(ProgramSettings):
    """A durable message broker that people can talk to: telnet localhost 8000."""

    model_config = settings_config("python -m broker")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on, 0 for a free one")
    data_dir: Path = Field(Path("data/broker"), description="folder of the logs and the state")
    durability: Durability = Field(
        "synced",
        description="what a confirmation promises: synced (the disk has it), written (the system has it), memory",
    )
    topic: list[str] = Field([], description="topic to make at start (repeatable)")
    line_bytes_max: Bytes = Field(
        "1MiB", validate_default=True, description="longest line that is taken (bytes, KiB, MiB)"
    )
    metrics_port: int = Field(9600, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")
