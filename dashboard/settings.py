"""The dashboard's settings."""

from pydantic import Field

from tweetwire.runtime.broker_flags import BrokerConnection
from tweetwire.runtime.program import ProgramSettings, settings_config

__all__ = ["DashboardSettings"]


class DashboardSettings(BrokerConnection, ProgramSettings):
    """Serve pages that show the topics of a broker, failed events and their errors, and that redrive dead letters."""

    model_config = settings_config("python -m dashboard")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8088, ge=0, le=65535, description="port to listen on, 0 for a free one")
    allowed_host: list[str] = Field(
        [], description="host name by which browsers may reach it, besides localhost and IP addresses"
    )
