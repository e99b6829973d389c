"""Where a program's broker is, who the program is there, and the clients that come of it."""

import ssl
from typing import Any, Final

from msgspec import Struct

from broker.client import Client
from broker.errors import Refusal, TlsFailed
from broker.sync_client import SyncClient
from broker.tls import TlsFiles

__all__ = ["FLAGS", "Login"]


FLAGS: Final = "--broker-"
"""How the flags of a program begin that are about its broker, as `broker.program.ClientSettings` has them."""


class Login(Struct, frozen=True):
    """The broker's address, and where that broker has users, one of them and its token, which is in no text of this.

    With `tls`, TLS is spoken. It can be sent to another process, which needs the files of `tls`, too. Raises ValueError for a
    user without a token, and for what cannot be a token.
    """

    address: str
    user: str | None = None
    token: str | None = None
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        """See that both are there or none, and that the token is one word of the line that it becomes part of."""
        if (self.user is None) != (self.token is None):
            raise ValueError("a broker's user and that user's token go together; only one of the two is given")
        if self.token is not None and not (self.token.isprintable() and self.token.split() == [self.token]):
            raise ValueError("a token is a word without spaces")

    def __repr__(self) -> str:
        """Show everything but the token."""
        return f"Login(address={self.address!r}, user={self.user!r}, tls={self.tls!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show the same to rich, which would else see all members."""
        return [("address", self.address), ("user", self.user), ("tls", self.tls)]

    def name(self, own: str) -> str:
        """Give the name that a program which calls itself `own` has there."""
        return self.user or own

    def client(self, own: str, *, connect_timeout_s: float = 10.0) -> Client:
        """Make a client, not yet connected, for a program that calls itself `own`. Raises TlsFileUnusable."""
        return Client(
            self.address,
            name=self.name(own),
            token=self.token,
            tls=self.context(),
            connect_timeout_s=connect_timeout_s,
        )

    def sync_client(self, own: str) -> SyncClient:
        """Connect a blocking client. Raises BrokerUnreachable, TlsFailed, Refusal, TlsFileUnusable."""
        return SyncClient(self.address, name=self.name(own), token=self.token, tls=self.context())

    def context(self) -> ssl.SSLContext | None:
        """Read the files of TLS, if it is spoken. Raises TlsFileUnusable."""
        return None if self.tls is None else self.tls.context()

    def reason(self, error: Exception) -> str:
        """Say why the broker refuses this one or cannot be talked to, and what to do about it."""
        if isinstance(error, TlsFailed):
            return error.with_remedy(FLAGS)
        if not isinstance(error, Refusal):
            return str(error) or type(error).__name__
        if error.code == "forbidden":
            return f"{error}; what {self.user} may do is in the file of the broker's --users"
        if error.code != "unauthenticated":
            return str(error)
        # The broker's own words are for who types a line.
        why = "it has users; set" if self.user is None else "no such name and token; see"
        return f"unauthenticated {why} --broker-user and --broker-token"
