"""TLS from files, with one sentence for a file that does not do, and a listener that tells whom it cannot understand."""

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import anyio
import structlog
from anyio.abc import AnyByteStream, SocketAttribute
from anyio.streams.tls import TLSListener
from msgspec import Struct

from broker.errors import StartError, TlsFileUnusable
from broker.greeting import NOT_TLS, SPEAKS_TLS

__all__ = ["TlsDoor", "TlsFiles", "server_context"]

_TELL_S: Final = 1.0

logger = structlog.stdlib.get_logger()


class TlsFiles(Struct, frozen=True):
    """What a client speaks TLS with: PEM files of the authority it trusts, of its own certificate, and of the key to that.

    Without `ca` it trusts whom the system trusts, without `cert` it shows none, without `key` that is in `cert`, too. Names
    and no context, so that it can be sent to other processes, and a file that was renewed counts with the next context.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def wanted(cls, *, tls: bool, ca: Path | None, cert: Path | None, key: Path | None) -> "TlsFiles | None":
        """Return what settings come to, None for no TLS; each of the files asks for it, too."""
        return cls(ca, cert, key) if tls or ca or cert or key else None

    def context(self) -> ssl.SSLContext:
        """Return what a connection needs. Raises TlsFileUnusable."""
        # OpenSSL does not say which of its files it cannot open.
        _see("ca", self.ca)
        _see("cert", self.cert)
        _see("key", self.key)
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError as error:
            raise TlsFileUnusable("ca", f"{self.ca} holds no certificate in PEM") from error
        if self.cert is not None:
            self._show(context, self.cert)
        elif self.key is not None:
            raise TlsFileUnusable("key", "needs the certificate that it is the key to")
        return context

    def _show(self, context: ssl.SSLContext, cert: Path) -> None:
        key = self.key or cert
        try:
            context.load_cert_chain(cert, key, password=_no_phrase)
        except ssl.SSLError as error:
            raise TlsFileUnusable("cert", f"{cert} and {key} are no certificate in PEM and the key to it") from error
        except ValueError as error:
            raise TlsFileUnusable("key", f"{key} {error}") from error


class TlsDoor(TLSListener):
    """Listens for TLS; one who speaks without it is told so in one line, since it may wait for a greeting in vain."""

    @staticmethod
    async def handle_handshake_error(exc: BaseException, stream: AnyByteStream) -> None:
        """End what does not become a connection, and log why."""
        reason = exc.reason if isinstance(exc, ssl.SSLError) else None
        if reason in NOT_TLS:
            with anyio.move_on_after(_TELL_S), suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stream.send(SPEAKS_TLS + b"\n")
        peer = stream.extra(SocketAttribute.remote_address, "")
        await anyio.aclose_forcefully(stream)
        if not isinstance(exc, Exception):
            raise exc
        name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        # One who asks whether the port is open, and ends, is nothing to be warned of.
        tell = logger.debug if isinstance(exc, anyio.EndOfStream) else logger.warning
        tell("no TLS with a client", peer=name, reason=reason or type(exc).__name__)


def server_context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return what a listener needs; with `client_ca`, clients must show a certificate that it signed. Raises StartError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=_no_phrase)
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


def _see(setting: Literal["ca", "cert", "key"], file: Path | None) -> None:
    try:
        if file is not None:
            file.open("rb").close()
    except OSError as error:
        raise TlsFileUnusable(setting, f"cannot read {file}: {error.strerror or error}") from error


def _no_phrase() -> str:
    # OpenSSL would ask on the terminal, which a program may not have.
    raise ValueError("has a pass phrase, which nobody is asked for; write the key without one")
