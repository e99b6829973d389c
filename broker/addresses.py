"""Addresses as people write them: ``host:port``, ``host``, ``:port``, ``[::1]:8000``."""

__all__ = ["DEFAULT_PORT", "split_address"]

DEFAULT_PORT = 8000


def split_address(text: str) -> tuple[str, int]:
    """Return host and port. Raises ValueError for anything else than an address."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text.strip(), str(DEFAULT_PORT)
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"{text!r} is no address; write it like localhost:8000")
    return host.strip("[]") or "127.0.0.1", int(port)
