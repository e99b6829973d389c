"""The flags that say how to reach the broker: its address, and the files for TLS."""

import ssl
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from tweetwire.client.addresses import BROKER_ADDRESS
from tweetwire.runtime.kinds import Address, OptionalFile, Switch
from tweetwire.runtime.tls import TlsFiles

__all__ = [
    "BROKER_ADDRESS",
    "BrokerAddress",
    "BrokerConnection",
    "TlsAuthority",
    "TlsCertificate",
    "TlsKey",
    "TlsSwitch",
]

BrokerAddress = Annotated[Address, Field(description="address of the broker")]
TlsSwitch = Annotated[Switch, Field(description="speak TLS with the broker; implied by the files below")]
TlsAuthority = Annotated[
    OptionalFile,
    Field(description="PEM file of the authority that signed the broker's certificate (default: the system's)"),
]
TlsCertificate = Annotated[
    OptionalFile, Field(description="PEM file with this program's certificate, if the broker requires one")
]
TlsKey = Annotated[
    OptionalFile, Field(description="PEM file with that certificate's key (default: in the certificate's file)")
]


class BrokerConnection(BaseSettings):
    """How a command or an interactive program reaches the broker. The user and the token are not part of it."""

    broker: BrokerAddress = BROKER_ADDRESS
    tls: TlsSwitch = False
    tls_ca: TlsAuthority = None
    tls_cert: TlsCertificate = None
    tls_key: TlsKey = None

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context for a connection to the broker, or None without TLS. Raises TlsFileUnusable."""
        files = TlsFiles.wanted(tls=self.tls, ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key)
        return None if files is None else files.context()
