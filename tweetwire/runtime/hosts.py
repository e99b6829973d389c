"""Check the names by which clients reach this machine's HTTP ports.

A web page can make its own host name resolve to this machine (DNS rebinding), and then read what a local port answers.
A port that accepts only known names in the `Host` header does not answer such a page.
"""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["is_known_host", "is_page_of"]


def is_known_host(header: str, names: Collection[str]) -> bool:
    """Return whether a `Host` header is an IP address or one of `names` (in lower case), with any port."""
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    try:
        ip_address(name)
    except ValueError:
        return name in names
    return True


def is_page_of(origin: str, host: str) -> bool:
    """Return whether an `Origin` header names a page of the host in a `Host` header, with the same port."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
