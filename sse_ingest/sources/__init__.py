"""From an address, as ``--source`` takes it, to a source that can be read."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from broker.errors import StartError
from sse_ingest.shapes import Shape
from sse_ingest.sources.replay import Replay
from sse_ingest.sources.source import Arrival, Feed, Source, SourceRefused, SourceState
from sse_ingest.sources.stream import EventStream, StreamLimits

__all__ = ["Arrival", "Feed", "Source", "SourceRefused", "SourceState", "StreamLimits", "source_of"]

_WIKIMEDIA = "https://stream.wikimedia.org/v2/stream/recentchange"
_LOGIN = re.compile(r"//[^/]*@")
_SHAPES_OF_REPLAYS: dict[str, Shape] = {
    "replay": "twitter",
    "replay-mastodon": "mastodon",
    "replay-wikimedia": "wikimedia",
}


def source_of(
    address: str, limits: StreamLimits, *, rate: float | None = None, loop: bool = False, token: str = ""
) -> Source:
    """Return the source at `address`; `rate` (events/s) and `loop` count for replays, `token` for Mastodon.

    Raises StartError where the address is none, or the token cannot be sent.
    """
    try:
        source = _source(address, limits, rate, loop, token)
    except (ValueError, httpx.InvalidURL) as error:
        # Said by who takes addresses apart: of ports, brackets and characters that none has.
        raise StartError(f"{_LOGIN.sub('//', address)!r} is no source: {error}") from error
    if source is None:
        raise StartError(
            f"{_LOGIN.sub('//', address)!r} is no source; "
            "write http://HOST:4000/tweets/1, mastodon:INSTANCE, wikimedia or replay:FILE"
        )
    return source


def _source(address: str, limits: StreamLimits, rate: float | None, loop: bool, token: str) -> Source | None:
    scheme, _, rest = address.partition(":")
    if scheme in ("http", "https") and urlsplit(address).hostname:
        return Source(_shown(address), "twitter", "", _stream(address, limits))
    if scheme == "mastodon" and rest:
        # Here, and not when it is sent: behind a proxy, h11 says which header is wrong by telling its value to the log.
        if not (token.isascii() and token.isprintable()):
            raise StartError("--mastodon-token has characters that no token has; copy it anew from the instance")
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
        lambda state, _: Replay(path, state, rate=rate, loop=loop, bytes_max=limits.event_bytes_max),
    )


def _shown(address: str) -> str:
    """Return the address without what may be secret: user, password and query."""
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.hostname}{port}{parts.path}"
