"""Decide which browsers' requests are refused, and which foreign pages may use the gateway.

A page on the internet can make a browser send requests to a gateway on this machine. Always true:

- the host name of a request is one of ours, so that a foreign name that points to this machine (DNS rebinding) is refused;
- a request from a page of another origin is refused, unless `--http-allow-origin` names that origin. This includes requests
  without the header `Origin`, which browsers mark with `Sec-Fetch-Site`.
"""

from collections.abc import Mapping
from typing import Final

from broker.gateways.http.answers import Answer, HttpError
from tweetwire.runtime.hosts import is_known_host, is_page_of

__all__ = ["Guard"]

FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})
PREFLIGHT_S: Final = 600
_METHODS: Final = "GET, POST"
_HEADERS: Final = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"


class Guard:
    """Checks the headers of requests. Header names are in lower case."""

    def __init__(self, names: frozenset[str], origins: frozenset[str]) -> None:
        self._names = names
        self._origins = origins

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError for a request that a browser may have sent for a foreign page."""
        host = headers.get("host", "")
        if not is_known_host(host, self._names):
            raise HttpError(
                403, "forbidden", f"this gateway is not known as {host!r}; name it with --http-allowed-host"
            )
        origin = headers.get("origin")
        if origin in self._origins:
            return
        if origin is not None and not is_page_of(origin, host):
            text = f"pages of {origin!r} may not use this gateway; allow them with --http-allow-origin"
            raise HttpError(403, "forbidden", text)
        if origin is None and headers.get("sec-fetch-site") in FOREIGN_SITES:
            raise HttpError(
                403, "forbidden", "a page of another site may not use this gateway without an Origin header"
            )

    def headers_for(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the headers that let a page of an allowed origin read the answer."""
        if not self._origins:
            return []
        origin = headers.get("origin")
        if origin not in self._origins:
            return [("vary", "Origin")]
        exposed = ("access-control-expose-headers", "Link, Retry-After")
        return [("vary", "Origin"), ("access-control-allow-origin", origin), exposed]

    def preflight(self, headers: Mapping[str, str]) -> Answer:
        """Answer a browser that asks whether a page of an allowed origin may send a request."""
        if headers.get("origin") not in self._origins:
            return Answer(204, b"", headers=(("allow", _METHODS),))
        allowed = (
            ("access-control-allow-methods", _METHODS),
            ("access-control-allow-headers", _HEADERS),
            ("access-control-max-age", str(PREFLIGHT_S)),
        )
        return Answer(204, b"", headers=allowed)
