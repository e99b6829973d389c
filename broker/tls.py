"""TLS for the broker's listener: the handshake of a connection, and the context made from the certificate files."""

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream

from broker.strangers_log import strangers_log
from tweetwire.client.greeting import NOT_TLS, SPEAKS_TLS
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.tls import no_pass_phrase

__all__ = ["TlsDoor", "server_context"]

HANDSHAKE_S: Final = 10.0
_TELL_S: Final = 1.0

logger = structlog.stdlib.get_logger()


class TlsDoor:
    """Does the TLS handshakes. `context` may be replaced at any time; handshakes that begin afterwards use the new one."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    async def shake_hands(self, stream: SocketStream) -> TLSStream | None:
        """Return the TLS stream of a connection. Logs a failed handshake and returns None.

        A client without TLS is sent one line that says so, since it may wait for a greeting that never arrives.
        """
        peer = stream.extra(SocketAttribute.remote_address, "")
        try:
            with anyio.fail_after(HANDSHAKE_S):
                return await TLSStream.wrap(
                    stream, server_side=True, ssl_context=self.context, standard_compatible=False
                )
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else None
            if reason in NOT_TLS:
                with anyio.move_on_after(_TELL_S), suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await stream.send(SPEAKS_TLS + b"\n")
            name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
            # A client that only probes whether the port is open is not a reason for a warning.
            tell = logger.debug if isinstance(error, anyio.EndOfStream) else strangers_log.warning
            tell("TLS handshake failed", peer=name, reason=reason or type(error).__name__)
            return None


def server_context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return the context of a listener. With `client_ca`, clients need a certificate that it signed. Raises StartError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=no_pass_phrase)
    except ValueError as error:
        raise StartError(f"the key {key} {error}") from error
    except OSError as error:
        raise StartError(
            f"cannot use the certificate {certificate} with the key {key}: {error.strerror or error}"
        ) from error
    try:
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise StartError(f"cannot use the authority {client_ca}: {error.strerror or error}") from error
    return context
