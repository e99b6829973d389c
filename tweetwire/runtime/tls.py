"""The PEM files with which a client speaks TLS, and one sentence for a file that cannot be used."""

import ssl
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tweetwire.protocol.errors import TlsFileUnusable

__all__ = ["TlsFiles", "no_pass_phrase"]


class TlsFiles(Struct, frozen=True):
    """The paths of the PEM files with which a client speaks TLS.

    These are paths and not a context, so that they can be sent to another process. A renewed file is used from the next
    context on.

    Args:
        ca: Certificates of the authorities that the client trusts; None for those that the system trusts.
        cert: The client's certificate; None to present no certificate.
        key: The key of that certificate; None if the file `cert` also holds the key.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def wanted(cls, *, tls: bool, ca: Path | None, cert: Path | None, key: Path | None) -> "TlsFiles | None":
        """Return the files if `tls` is true or any file is given, else None for no TLS."""
        return cls(ca, cert, key) if tls or ca or cert or key else None

    def context(self) -> ssl.SSLContext:
        """Return a TLS context made from the files. Raises TlsFileUnusable."""
        # OpenSSL does not report which file it cannot open, so open each of them here first.
        _see("ca", self.ca)
        _see("cert", self.cert)
        _see("key", self.key)
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError as error:
            raise TlsFileUnusable("ca", f"{self.ca} holds no PEM certificate") from error
        if self.cert is not None:
            self._show(context, self.cert)
        elif self.key is not None:
            raise TlsFileUnusable("key", "needs the certificate that it is the key to")
        return context

    def _show(self, context: ssl.SSLContext, cert: Path) -> None:
        key = self.key or cert
        try:
            context.load_cert_chain(cert, key, password=no_pass_phrase)
        except ssl.SSLError as error:
            raise TlsFileUnusable("cert", f"{cert} and {key} are not a PEM certificate and its key") from error
        except ValueError as error:
            raise TlsFileUnusable("key", f"{key} {error}") from error


def _see(setting: Literal["ca", "cert", "key"], file: Path | None) -> None:
    try:
        if file is not None:
            file.open("rb").close()
    except OSError as error:
        raise TlsFileUnusable(setting, f"cannot read {file}: {error.strerror or error}") from error


def no_pass_phrase() -> str:
    """Refuse a key with a pass phrase. OpenSSL would ask for it on the terminal, which a program may not have."""
    raise ValueError("has a pass phrase, and the program cannot ask for it; write the key without one")
