"""The dashboard's settings."""

import ssl
from pathlib import Path

from pydantic import Field

from broker.kinds import Address
from broker.program import ProgramSettings, settings_config
from broker.tls import client_context

__all__ = ["DashboardSettings"]


class DashboardSettings(ProgramSettings):
    """A page in the browser that shows what flows through a broker, what failed and why, and gives it again."""

    model_config = settings_config("python -m broker.dashboard")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8088, ge=0, le=65535, description="port to listen on, 0 for a free one")
    allowed_host: list[str] = Field(
        [], description="name by which browsers may reach it, besides localhost and addresses"
    )
    broker: Address = Field("127.0.0.1:8000", description="address of the broker")
    tls: bool = Field(False, description="speak TLS with the broker; implied by the files below")
    tls_ca: Path | None = Field(None, description="PEM file of the authority that the broker's certificate is from")
    tls_cert: Path | None = Field(None, description="PEM file with the dashboard's certificate for the broker")
    tls_key: Path | None = Field(None, description="PEM file with that certificate's key")

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what a connection to the broker needs, None without TLS. Raises StartError."""
        if not (self.tls or self.tls_ca or self.tls_cert):
            return None
        return client_context(self.tls_ca, self.tls_cert, self.tls_key)
