"""Create a certificate authority and certificates signed by it, for tests."""

import subprocess
from pathlib import Path

__all__ = ["files_of", "make_certificates"]

NEW = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def make_certificates(folder: Path) -> Path:
    """Make certificates, each with .pem and .key: the authorities `ca` and `other`, and `server` and `client` signed by `ca`.

    `server` and `client` are valid for 127.0.0.1 only.
    """
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("ca", "other"):
        files = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
        openssl(*NEW, "-x509", "-days", "2", "-subj", f"/CN={name}", *files)
    by = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial", "-extfile", folder / "san")
    for name in ("server", "client"):
        request = folder / f"{name}.csr"
        openssl(*NEW, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", request)
        openssl("x509", "-req", "-days", "2", *by, "-in", request, "-out", folder / f"{name}.pem")
    return folder


def files_of(certificates: Path, name: str, prefix: str = "--") -> list[str]:
    """Return the flags that name a certificate, its key and the authority, for the broker and for clients."""
    return [
        f"{prefix}tls-cert={certificates}/{name}.pem",
        f"{prefix}tls-key={certificates}/{name}.key",
        f"{prefix}tls-ca={certificates}/ca.pem",
    ]
