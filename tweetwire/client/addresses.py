"""Parse the addresses that users write (``host:port``, ``host``, ``:port``, ``[::1]:8000``), and those of peers."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

__all__ = ["BROKER_ADDRESS", "DEFAULT_PORT", "address_group", "is_loopback", "split_address"]

DEFAULT_PORT = 8000
BROKER_ADDRESS: Final = f"127.0.0.1:{DEFAULT_PORT}"
"""The address of a broker that was started without flags."""
IPV6_HOST_BITS: Final = 64


def split_address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address. Raises ValueError if `text` is not an address."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text.strip(), str(DEFAULT_PORT)
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"{text!r} is not an address; write it like localhost:8000")
    return host.strip("[]") or "127.0.0.1", int(port)


def address_group(host: str) -> str:
    """Return the address that limits count for `host`: an IPv4 address, or the /64 network of an IPv6 address.

    One machine may use all addresses of a /64 network.
    """
    address = _parse(host)
    if isinstance(address, IPv6Address):
        return str(IPv6Address(int(address) >> IPV6_HOST_BITS << IPV6_HOST_BITS))
    return host if address is None else str(address)


def is_loopback(host: str) -> bool:
    """Return whether a peer's address is a loopback address, which only this machine can use."""
    address = _parse(host)
    return address is not None and address.is_loopback


def _parse(host: str) -> IPv4Address | IPv6Address | None:
    """Return a peer's address, or None if `host` is not an IP address. An IPv4 address in IPv6 form becomes IPv4."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address
