"""Turn an address of ``--source`` into a source that can be read."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from sse_ingest.shapes import Shape
from sse_ingest.sources.replay import Replay
from sse_ingest.sources.source import Arrival, Feed, Source, SourceRefused, SourceState
from sse_ingest.sources.stream import EventStream, StreamLimits
from tweetwire.protocol.errors import StartError

__all__ = ["Arrival", "Feed", "Source", "SourceRefused", "SourceState", "StreamLimits", "source_of"]

_WIKIMEDIA = "https://stream.wikimedia.org/v2/stream/recentchange"
_LOGIN = re.compile(r"//[^/]*@")
_SHAPES_OF_REPLAYS: dict[str, Shape] = {
    "replay": "twitter",
    "replay-mastodon": "mastodon",
    "replay-wikimedia": "wikimedia",
}
_LINE_TYPES: dict[Shape, str] = {"mastodon": "update"}
"""The event type of a line that names no type, by shape. In a Mastodon recording, such a line is a status."""


def source_of(
    address: str, limits: StreamLimits, *, rate: float | None = None, loop: bool = False, token: str = ""
) -> Source:
    """Return the source at `address`.

    Args:
        address: an address as ``--source`` takes it.
        limits: the limits of event streams.
        rate: events per second of a replay; None for as fast as possible.
        loop: whether a replay restarts when it ends.
        token: Mastodon's access token, "" for none.

    Raises:
        StartError: the address is not valid, or the token cannot be sent.
    """
    try:
        source = _source(address, limits, rate, loop, token)
    except (ValueError, httpx.InvalidURL) as error:
        # The parsers of addresses raise these for ports, brackets and characters that are not valid.
        raise StartError(f"{_LOGIN.sub('//', address)!r} is not a source: {error}") from error
    if source is None:
        raise StartError(
            f"{_LOGIN.sub('//', address)!r} is not a source; "
            "write http://HOST:4000/tweets/1, mastodon:INSTANCE, wikimedia or replay:FILE"
        )
    return source


def _source(address: str, limits: StreamLimits, rate: float | None, loop: bool, token: str) -> Source | None:
    scheme, _, rest = address.partition(":")
    if scheme in ("http", "https") and urlsplit(address).hostname:
        return Source(_shown(address), "twitter", "", _stream(address, limits))
    if scheme == "mastodon" and rest:
        # Check the token here: with a proxy, an error of h11 about the header would write the token to the log.
        if not (token.isascii() and token.isprintable()):
            raise StartError("--mastodon-token has characters that no token has; copy it again from the instance")
        base = rest.rstrip("/") if "://" in rest else f"https://{rest.strip('/')}"
        host = _shown(base).partition("/")[0]
        return Source(f"mastodon:{host}", "mastodon", host, _stream(f"{base}/api/v1/streaming/public", limits, token))
    if scheme == "wikimedia":
        return Source("wikimedia", "wikimedia", "wikimedia", _stream(rest or _WIKIMEDIA, limits))
    if scheme in _SHAPES_OF_REPLAYS and rest:
        return _replay(scheme, Path(rest), limits, rate, loop)
    return None


def _stream(url: str, limits: StreamLimits, token: str | None = None) -> Callable[[SourceState, str], Feed]:
    httpx.URL(url)
    return lambda state, last_id: EventStream(url, state, limits, last_id=last_id, token=token)


def _replay(scheme: str, path: Path, limits: StreamLimits, rate: float | None, loop: bool) -> Source:
    Replay.check(path)
    shape = _SHAPES_OF_REPLAYS[scheme]
    return Source(
        f"replay:{path.name}",
        shape,
        "" if shape == "twitter" else shape,
        lambda state, _: Replay(
            path,
            state,
            rate=rate,
            loop=loop,
            bytes_max=limits.event_bytes_max,
            line_type=_LINE_TYPES.get(shape, "message"),
        ),
    )


def _shown(address: str) -> str:
    """Return the address without its secrets: user, password and query."""
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.hostname}{port}{parts.path}"
