"""How a connection to a broker begins, for both clients, and what is said where it does not come to one."""

import socket
import ssl
from errno import ECONNABORTED, ECONNRESET, EPIPE
from typing import Final

import anyio
from anyio.abc import ByteStream

from broker.addresses import split_address
from broker.errors import BrokerUnreachable, TlsFailed
from broker.protocol import replies

__all__ = [
    "GREETING_MAX",
    "NOT_TLS",
    "SPEAKS_TLS",
    "first_bytes",
    "open_stream",
    "see_greeting",
    "unreachable",
    "watch_peer",
]

GREETING_MAX: Final = 4096
SPEAKS_TLS: Final = b"-ERR forbidden this port speaks TLS"
"""What a broker that speaks TLS says to one who does not."""

NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})
"""What OpenSSL calls first bytes that are not TLS."""

_NOTHING: Final = b"\n" * 5
_WANTS_OTHER_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
_WATCH: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 300_000}
"""Seconds until a quiet peer is asked, between questions, their number; milliseconds that sent data may lie unacknowledged.

The last is long, as it also ends a connection to one that is there and takes nothing, such as a broker with a slow disk.
"""
_ENDED: Final = frozenset({ECONNABORTED, ECONNRESET, EPIPE})


def first_bytes(tls: ssl.SSLContext | None) -> bytes:
    """Return what a client sends before it is greeted.

    Without TLS these are empty lines, which mean nothing to a broker. One that speaks TLS waits for a hello as the client
    waits for the greeting; from as many bytes as the head of a TLS record has it sees that no hello will come.
    """
    return b"" if tls is not None else _NOTHING


async def open_stream(address: str, tls: ssl.SSLContext | None) -> ByteStream:
    """Connect, with TLS or without. Raises what `unreachable` translates."""
    host, port = split_address(address)
    if tls is None:
        return await anyio.connect_tcp(host, port)
    return await anyio.connect_tcp(host, port, ssl_context=tls, tls_standard_compatible=False)


def watch_peer(connection: socket.socket) -> None:
    """Have the system see that the machine at the other end is there: after a cut cable a connection would stand for ever."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _WATCH.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def see_greeting(address: str, line: bytes, tls: ssl.SSLContext | None) -> None:
    """See that the first line is a broker's. Raises BrokerUnreachable, TlsFailed, and Refusal of one that has no room."""
    if line.rstrip() == SPEAKS_TLS:
        raise TlsFailed(address, "speaks TLS only, and this client does not", "tls")
    if line.startswith(b"-ERR "):
        raise replies.refusal_of(line)
    if not line.startswith(b"+OK "):
        raise _no_greeting(address, tls)


def unreachable(address: str, error: BaseException, tls: ssl.SSLContext | None) -> BrokerUnreachable | TlsFailed:
    """Translate what went wrong on the way to the greeting."""
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return TlsFailed(
            address, f"has a certificate that is not trusted ({cause.verify_message.rstrip('.')})", "tls-ca"
        )
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _tls_failed(address, cause.reason or str(cause))
    if isinstance(cause, EOFError | anyio.EndOfStream | anyio.BrokenResourceError | ssl.SSLError):
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


def _no_greeting(address: str, tls: ssl.SSLContext | None) -> BrokerUnreachable:
    or_else = "it wants TLS" if tls is None else "it wants a certificate of this client"
    return BrokerUnreachable(address, f"what listens there does not greet as a broker does, or {or_else}")


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()


def _cause(error: BaseException) -> BaseException:
    """Find the system's word: anyio has it behind its own, one for each address that it tried."""
    while isinstance(error, BaseExceptionGroup) or error.__cause__ is not None:
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error
    return error
