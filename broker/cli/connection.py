"""What every command needs: which broker, who asks, and how the connection is secured."""

import socket
import ssl

import anyio
from anyio.abc import ByteStream
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from broker.addresses import split_address
from broker.greeting import open_stream, unreachable
from broker.kinds import Address, OptionalFile, Switch
from broker.program import Name, settings_config
from broker.sync_client import SyncClient
from broker.tls import TlsFiles
from broker.units import Seconds

__all__ = ["Connection", "command_config"]


def command_config(command: str) -> SettingsConfigDict:
    """Name a command's flags; the environment has one variable a setting for all commands (``TWEETWIRE_BROKER``)."""
    return settings_config(f"python -m broker {command}") | SettingsConfigDict(env_prefix="TWEETWIRE_")


class Connection(BaseSettings):
    """A command on a connection of its own."""

    broker: Address = Field("127.0.0.1:8000", description="address of the broker")
    name: Name = Field("cli", description="name that this client gives itself, or that of a user")
    token: SecretStr | None = Field(None, description="token of that user; better in TWEETWIRE_TOKEN than as a flag")
    timeout: Seconds = Field("10s", validate_default=True, description="longest wait for an answer")
    tls: Switch = Field(False, description="speak TLS; implied by the files below")
    tls_ca: OptionalFile = Field(
        None, description="PEM file of the authority that the broker's certificate is from (default: the system's)"
    )
    tls_cert: OptionalFile = Field(None, description="PEM file with this client's certificate")
    tls_key: OptionalFile = Field(
        None, description="PEM file with that certificate's key (default: in the certificate's file)"
    )

    def carry_out(self) -> None:
        """Do what the command is for. Raises BrokerError, StartError."""
        raise NotImplementedError

    def connect(self) -> SyncClient:
        """Connect. Raises BrokerUnreachable, TlsFailed, Refusal, StartError."""
        return SyncClient(
            self.broker, name=self.name, token=self.plain_token, tls=self._tls_context(), timeout_s=self.timeout
        )

    def connect_socket(self) -> socket.socket:
        """Connect for those who speak for themselves; waits without an end. Raises BrokerUnreachable, TlsFailed, StartError."""
        host, port = split_address(self.broker)
        context = self._tls_context()
        try:
            connection = socket.create_connection((host, port), self.timeout)
            if context is not None:
                connection = context.wrap_socket(connection, server_hostname=host)
        except OSError as error:
            raise unreachable(self.broker, error, context) from error
        connection.settimeout(None)
        return connection

    async def connect_stream(self) -> ByteStream:
        """Connect for those who speak and listen at once. Raises BrokerUnreachable, TlsFailed, StartError."""
        context = self._tls_context()
        try:
            with anyio.fail_after(self.timeout):
                return await open_stream(self.broker, context)
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise unreachable(self.broker, error, context) from error

    @property
    def plain_token(self) -> str | None:
        """The token itself, for the line that needs it."""
        return None if self.token is None else self.token.get_secret_value()

    def _tls_context(self) -> ssl.SSLContext | None:
        files = TlsFiles.wanted(tls=self.tls, ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key)
        return None if files is None else files.context()
