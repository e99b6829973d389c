"""The address of a program's broker, the program's user there, and clients made from both."""

import ssl
from typing import Any, Final

from msgspec import Struct

from tweetwire.client.aio import Client
from tweetwire.client.blocking import SyncClient
from tweetwire.protocol.errors import Refusal, TlsFailed
from tweetwire.runtime.tls import TlsFiles

__all__ = ["FLAGS", "Login"]


FLAGS: Final = "--broker-"
"""The prefix of a program's flags for its broker, as in `tweetwire.runtime.program.ClientSettings`."""


class Login(Struct, frozen=True):
    """The broker's address, and if the broker has users, a user and its token.

    The token is never part of the text of this object. A login can be pickled and used in another process, which needs the
    same files for TLS.

    Args:
        address: Address of the broker.
        user: Name of the user, or None for a broker without users.
        token: Token of that user.
        tls: The files for TLS; None for a connection without TLS.

    Raises:
        ValueError: Only one of `user` and `token` is given, or `token` is not one printable word.
    """

    address: str
    user: str | None = None
    token: str | None = None
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        """Check that user and token are given together, and that the token is one word: it is sent as part of a line."""
        if (self.user is None) != (self.token is None):
            raise ValueError("a broker's user and that user's token go together; only one of the two is given")
        if self.token is not None and not (self.token.isprintable() and self.token.split() == [self.token]):
            raise ValueError("a token is a word without spaces")

    def __repr__(self) -> str:
        """Show everything but the token."""
        return f"Login(address={self.address!r}, user={self.user!r}, tls={self.tls!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show everything but the token also in rich, which would show all members by default."""
        return [("address", self.address), ("user", self.user), ("tls", self.tls)]

    def name(self, own: str) -> str:
        """Return the program's name at the broker: the user, or `own` if there is no user."""
        return self.user or own

    def client(self, own: str, *, connect_timeout_s: float = 10.0) -> Client:
        """Return a client that is not yet connected. `own` is its name if there is no user. Raises TlsFileUnusable."""
        return Client(
            self.address,
            name=self.name(own),
            token=self.token,
            tls=self.context(),
            connect_timeout_s=connect_timeout_s,
        )

    def sync_client(self, own: str) -> SyncClient:
        """Return a connected blocking client that does not reconnect. `own` is its name if there is no user.

        Raises BrokerUnreachable, TlsFailed, Refusal, TlsFileUnusable.
        """
        return SyncClient(self.address, name=self.name(own), token=self.token, tls=self.context(), reconnect_s=0)

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context from its files, or None without TLS. Raises TlsFileUnusable."""
        return None if self.tls is None else self.tls.context()

    def reason(self, error: Exception) -> str:
        """Return why the broker refuses this program or cannot be reached, and what the user can do about it."""
        if isinstance(error, TlsFailed):
            return error.with_remedy(FLAGS)
        if not isinstance(error, Refusal):
            return str(error) or type(error).__name__
        if error.code == "forbidden":
            return f"{error}; the file of the broker's --users lists the rights of {self.user}"
        if error.code != "unauthenticated":
            return str(error)
        # The broker words its refusal for a user who types commands; this text names the flags instead.
        why = "it has users; set" if self.user is None else "no such name and token; see"
        return f"unauthenticated {why} --broker-user and --broker-token"
