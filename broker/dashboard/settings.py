"""The dashboard's settings."""

import ssl

from pydantic import Field

from broker.kinds import Address, OptionalFile, Switch
from broker.program import ProgramSettings, settings_config
from broker.tls import TlsFiles

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
    tls: Switch = Field(False, description="speak TLS with the broker; implied by the files below")
    tls_ca: OptionalFile = Field(
        None, description="PEM file of the authority that the broker's certificate is from (default: the system's)"
    )
    tls_cert: OptionalFile = Field(None, description="PEM file with the dashboard's certificate for the broker")
    tls_key: OptionalFile = Field(
        None, description="PEM file with that certificate's key (default: in the certificate's file)"
    )

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what a connection to the broker needs, None without TLS. Raises StartError."""
        files = TlsFiles.wanted(tls=self.tls, ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key)
        return None if files is None else files.context()
