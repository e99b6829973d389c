"""TLS contexts from files, with one sentence for a file that does not do."""

import ssl
from pathlib import Path

from broker.errors import StartError

__all__ = ["client_context", "server_context"]


def server_context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return what a listener needs; with `client_ca`, clients must show a certificate that it signed. Raises StartError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise StartError(
            f"cannot use the certificate {certificate} with the key {key}: {error.strerror or error}"
        ) from error
    return context


def client_context(authority: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return what a client needs, with its own certificate where there is one. Raises StartError."""
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise StartError(f"cannot use the TLS files: {error.strerror or error}") from error
    return context
