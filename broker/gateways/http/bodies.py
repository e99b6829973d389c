"""The bodies of requests in memory, which are bounded for each request and for all requests together."""

from collections.abc import Mapping
from typing import Final

from starlette.types import Receive

from broker.gateways.http.errand import Gone
from tweetwire.protocol.errors import Refusal

__all__ = ["Bodies"]

ALL_BYTES_MAX: Final = 64 << 20
LENGTH_DIGITS_MAX: Final = 18


class Bodies:
    """Reads bodies of at most `bytes_max` bytes. Those that are being read hold at most `ALL_BYTES_MAX` bytes.

    The whole body is read before any of it is used. So a request that breaks off, or is too long, publishes nothing.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0

    async def read(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """Return the whole body. Raises Refusal ``too_long`` or ``busy``, and Gone if the client disconnects."""
        length = headers.get("content-length", "0")
        if len(length) > LENGTH_DIGITS_MAX or int(length) > self._bytes_max:
            raise self._too_long()
        body = bytearray()
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                if len(body) + len(part) > self._bytes_max:
                    raise self._too_long()
                if self._held + len(part) > ALL_BYTES_MAX:
                    raise Refusal(
                        "busy", "the bodies of other requests fill the memory for bodies; try again in a moment"
                    )
                body += part
                self._held += len(part)
                if not message.get("more_body", False):
                    return bytes(body)
        finally:
            self._held -= len(body)

    def _too_long(self) -> Refusal:
        return Refusal("too_long", f"a body has at most {self._bytes_max} bytes; see --http-body-bytes-max")
