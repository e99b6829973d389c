"""The flags of every command for its connection: the broker, the user, and TLS."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from tweetwire.cli.flags import CONNECTION, OUTPUT, TLS, Command, Flag, argument
from tweetwire.cli.kinds import ADDRESS, FILE, NAME, PATTERN, SECONDS, SWITCH, TOKEN, Token
from tweetwire.client.addresses import BROKER_ADDRESS

if TYPE_CHECKING:
    import ssl

    from tweetwire.client.blocking import SyncClient

__all__ = [
    "ClientName",
    "CommandConnection",
    "EventJsonSwitch",
    "JsonSwitch",
    "SubscriptionFilter",
    "SubscriptionFlag",
    "TopicArgument",
    "TopicFlag",
    "TopicsArgument",
]

_TOPIC: Final = NAME._replace(completes="topic")
_SUBSCRIPTION: Final = NAME._replace(completes="subscription")

TopicArgument = Annotated[str, argument(_TOPIC, "the topic")]
TopicsArgument = Annotated[
    str,
    argument(
        PATTERN._replace(completes="topic"), "the topic, or in quotes a pattern of topics: 'orders.*', 'tenant.>'"
    ),
]
TopicFlag = Annotated[str | None, Flag(_TOPIC, "only this topic", default="all")]
ClientName = Annotated[str, Flag(NAME, "name of this client, or of a user if the broker has users", group=CONNECTION)]
SubscriptionFlag = Annotated[str, Flag(_SUBSCRIPTION, "the subscription")]
SubscriptionFilter = Annotated[str | None, Flag(_SUBSCRIPTION, "only this subscription", default="all")]
EventJsonSwitch = Annotated[
    bool, Flag(SWITCH, "write each event as a line of JSON, as it is stored", name="json", group=OUTPUT)
]
JsonSwitch = Annotated[bool, Flag(SWITCH, "write one line of JSON instead of tables", name="json", group=OUTPUT)]


class ConnectionFlags(Command, kw_only=True):
    """A command that has the flags of a connection: the broker, the user and TLS."""

    broker: Annotated[str, Flag(ADDRESS, "address of the broker", group=CONNECTION)] = BROKER_ADDRESS
    name: ClientName = "cli"
    token: Annotated[
        Token | None,
        Flag(TOKEN, "token of that user; pass it in TWEETWIRE_TOKEN, because others can see flags", group=CONNECTION),
    ] = None
    tls: Annotated[
        bool, Flag(SWITCH, "speak TLS with the broker; implied by the files of the TLS flags", group=TLS)
    ] = False
    tls_ca: Annotated[
        Path | None,
        Flag(FILE, "PEM file of the authority that signed the broker's certificate", group=TLS, default="the system's"),
    ] = None
    tls_cert: Annotated[
        Path | None,
        Flag(FILE, "PEM file with this client's certificate, if the broker requires one", group=TLS, is_rare=True),
    ] = None
    tls_key: Annotated[
        Path | None,
        Flag(
            FILE,
            "PEM file with that certificate's key",
            group=TLS,
            default="in the certificate's file",
            is_rare=True,
        ),
    ] = None

    def tls_context(self) -> "ssl.SSLContext | None":
        """Return the TLS context for a connection to the broker, or None without TLS. Raises TlsFileUnusable."""
        if not (self.tls or self.tls_ca or self.tls_cert or self.tls_key):
            return None
        from tweetwire.runtime.tls import TlsFiles  # noqa: PLC0415 — imported here, because most connections do not use TLS

        return TlsFiles(self.tls_ca, self.tls_cert, self.tls_key).context()

    @property
    def plain_token(self) -> str | None:
        """The token as plain text, or None."""
        return None if self.token is None else self.token.plain


class CommandConnection(ConnectionFlags, kw_only=True):
    """A command that connects to the broker."""

    context: Annotated[
        str | None,
        Flag(
            NAME._replace(completes="context"),
            "saved broker to use; other flags and variables override its values",
            group=CONNECTION,
            default="that of tweetwire context use",
        ),
    ] = None
    timeout: Annotated[float, Flag(SECONDS, "longest wait for an answer", group=CONNECTION, is_rare=True)] = 10.0

    def connect(self) -> "SyncClient":
        """Return a connected client. Raises BrokerUnreachable, TlsFailed, Refusal, StartError."""
        from tweetwire.client.blocking import SyncClient  # noqa: PLC0415 — --help needs no client

        return SyncClient(
            self.broker,
            name=self.name,
            token=self.plain_token,
            tls=self.tls_context(),
            timeout_s=self.timeout,
            # The user sees the error at once and can repeat the command.
            reconnect_s=0,
        )
