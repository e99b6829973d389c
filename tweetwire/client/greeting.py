"""Begin a connection to a broker, for both clients, and translate the errors until its greeting."""

import socket
from errno import ECONNABORTED, ECONNRESET, EPIPE
from typing import TYPE_CHECKING, Final

from tweetwire.keepalive import Keepalive, set_keepalive
from tweetwire.protocol import replies
from tweetwire.protocol.errors import BrokerUnreachable, TlsFailed

if TYPE_CHECKING:
    import ssl

__all__ = [
    "GREETING_MAX",
    "NOT_TLS",
    "SPEAKS_TLS",
    "first_bytes",
    "root_cause",
    "see_greeting",
    "unreachable",
    "watch_peer",
]

GREETING_MAX: Final = 4096
SPEAKS_TLS: Final = b"-ERR forbidden this port speaks TLS"
"""The answer of a broker that speaks TLS to a client that does not."""

NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})
"""The reasons that OpenSSL gives if the peer's first bytes are not TLS."""

_NOTHING: Final = b"\n" * 5
_WANTS_OTHER_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
_KEEPALIVE: Final = Keepalive(idle_s=30, interval_s=10, probes=3, timeout_ms=300_000)
"""The last time is long because it also applies to a live peer that does not read, such as a broker with a slow disk."""
_ENDED: Final = frozenset({ECONNABORTED, ECONNRESET, EPIPE})


def first_bytes(tls: "ssl.SSLContext | None") -> bytes:
    """Return the bytes that a client sends before the greeting.

    Without TLS these are empty lines, which a broker ignores. A broker that speaks TLS waits for a TLS hello while the
    client waits for the greeting. These bytes are as long as the header of a TLS record, so such a broker sees at once
    that the client does not speak TLS.
    """
    return b"" if tls is not None else _NOTHING


def watch_peer(connection: socket.socket) -> None:
    """Make the operating system detect a lost peer. Without this, a connection stays open forever after a cut cable."""
    set_keepalive(connection, _KEEPALIVE)


def see_greeting(address: str, line: bytes, tls: "ssl.SSLContext | None") -> None:
    """Check that the first line is a broker's greeting.

    Raises TlsFailed if the broker requires TLS, Refusal if it accepts no more connections, and otherwise BrokerUnreachable.
    """
    if line.rstrip() == SPEAKS_TLS:
        raise TlsFailed(address, "speaks TLS only, and this client does not", "tls")
    if line.startswith(b"-ERR "):
        raise replies.refusal_of(line)
    if not line.startswith(b"+OK "):
        raise _no_greeting(address, tls)


def unreachable(address: str, error: BaseException, tls: "ssl.SSLContext | None") -> BrokerUnreachable | TlsFailed:
    """Return the client's error for an exception that was raised before the greeting. EOFError is an early end."""
    import ssl  # noqa: PLC0415 — most clients speak without TLS, and this module takes a tenth of their start

    cause = root_cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return TlsFailed(
            address, f"has a certificate that is not trusted ({cause.verify_message.rstrip('.')})", "tls-ca"
        )
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _tls_failed(address, cause.reason or str(cause))
    if isinstance(cause, EOFError | ssl.SSLError):
        return _no_greeting(address, tls)
    if not isinstance(cause, OSError):
        return BrokerUnreachable(address, str(cause) or type(cause).__name__)
    if cause.errno in _ENDED:
        return _no_greeting(address, tls)
    return BrokerUnreachable(address, cause.strerror or str(cause) or "timeout")


def _tls_failed(address: str, reason: str) -> TlsFailed:
    if reason in NOT_TLS:
        return TlsFailed(address, f"does not speak TLS, and this client does ({_words(reason)})", "tls")
    if any(word in reason for word in _WANTS_OTHER_CERTIFICATE):
        return TlsFailed(address, f"wants another certificate of this client ({_words(reason)})", "tls-cert")
    return TlsFailed(address, f"does not agree on TLS with this client ({_words(reason)})", "tls")


def _no_greeting(address: str, tls: "ssl.SSLContext | None") -> BrokerUnreachable:
    or_else = "it wants TLS" if tls is None else "it wants a certificate of this client"
    return BrokerUnreachable(address, f"the server there does not greet as a broker does, or {or_else}")


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()


def root_cause(error: BaseException) -> BaseException:
    """Return the operating system's error. anyio wraps one for each address that it tried; this is the first."""
    while isinstance(error, BaseExceptionGroup) or error.__cause__ is not None:
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error
    return error
