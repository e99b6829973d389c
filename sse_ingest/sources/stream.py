"""An HTTP event stream that goes on: httpx and sseclient-py, and everything between two connections.

Each connection ends in one of three ways, and each has one answer. Lost (network, 5xx, 429, silence for too long, a close
by the server): wait with growing, spread pauses and connect again with Last-Event-ID. Ended (204): the server has no more, and
asks not to be asked again. Refused (another 4xx, no event stream): a person has to look, unless it has been read before;
what stands before a server that restarts says all kinds of things.
"""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import httpx
from msgspec import Struct
from sseclient import SSEClient

from broker.program import logger
from sse_ingest.backoff import pause_s, retry_after_s
from sse_ingest.handover import RawEvent
from sse_ingest.sources.blocks import Block, Blocks
from sse_ingest.sources.source import Arrival, SourceRefused, SourceState
from sse_ingest.sources.transport import client, socket_of

__all__ = ["EventStream", "StreamLimits", "arrivals", "too_large"]

_HEADERS = {
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",
    "Cache-Control": "no-store",
    # Wikimedia turns away clients that do not say who they are.
    "User-Agent": f"tweetwire/{version('tweetwire')} (+https://github.com/tweetwire/tweetwire)",
}
_UNKNOWN_ID = frozenset({400, 410, 412, 413, 416, 431})
_LATER = frozenset({408, 425, 429})
_NO_ENTRY = frozenset({401, 403})
_MISSED = "without an id: what it sent meanwhile cannot be had again"

NOT_FOUND_MAX = 3
"""So many 404 before a stream is found again are about our last id, as one alone need not be."""

NAME_BYTES_MAX = 400

ASKED_MAX = 10
"""How many times our own longest pause a server may ask for."""

log = logger()


class StreamLimits(Struct, frozen=True):
    """Seconds and bytes that a stream is held to; `silence_s` is how long it may say nothing, not even a comment."""

    connect_s: float = 10.0
    silence_s: float = 60.0
    pause_s: float = 1.0
    pause_max_s: float = 30.0
    event_bytes_max: int = 1 << 20


class _Lost(Exception):
    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class EventStream:
    """The events of one address, over as many connections as it takes. Read by one thread, closed by any.

    `token` None says that the address takes no access token, an empty one that there is none.
    """

    def __init__(
        self, url: str, state: SourceState, limits: StreamLimits, *, last_id: str = "", token: str | None = None
    ) -> None:
        self.last_id = last_id
        self._url = url
        self._state = state
        self._limits = limits
        self._token = token
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None
        self._retry_s = 0.0
        self._failures = 0
        self._lost_at: float | None = None
        self._is_id_unknown = False
        self._not_found = 0

    def __iter__(self) -> Iterator[Arrival]:
        """Yield events until the server has no more or `close` is called. Raises `SourceRefused`."""
        timeout = httpx.Timeout(self._limits.silence_s, connect=self._limits.connect_s)
        with client(timeout, self._authorize) as http:
            while not self._stopped.is_set():
                try:
                    yield from self._connection(http)
                    return
                except _Lost as lost:
                    if self._stopped.is_set():
                        return
                    self._wait(lost)

    def close(self) -> None:
        """End the iteration, also where it waits for bytes."""
        self._stopped.set()
        with contextlib.suppress(OSError, AttributeError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def _connection(self, http: httpx.Client) -> Iterator[Arrival]:
        """Yield the events of one connection; returns only if there will be no other. Raises `_Lost`."""
        self._state.becomes("connecting")
        # Nobody needs them here, and one that cannot be sent back would end every later request.
        http.cookies.clear()
        headers = httpx.Headers(_HEADERS, encoding="utf-8")
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        try:
            with http.stream("GET", self._url, headers=headers) as response:
                if response.status_code == httpx.codes.NO_CONTENT:
                    return
                self._judge(response)
                self._socket = socket_of(response)
                if self._stopped.is_set():
                    return
                self._found()
                yield from arrivals(self._blocks(response), self._limits.event_bytes_max)
        except (httpx.TransportError, httpx.DecodingError, OSError) as error:
            raise _Lost(str(error) or type(error).__name__) from error
        except (httpx.TooManyRedirects, httpx.InvalidURL, UnicodeError) as error:
            # Among the last: a host's name, in the address or where it sends us on to, that cannot be one.
            raise self._refusal(f"{self._state.name} leads nowhere: {error}") from error
        finally:
            self._socket = None
        raise _Lost("the server closed the stream")

    def _authorize(self, request: httpx.Request) -> None:
        """Add the token, also where the instance sends us on to: many have a host of its own for their streams."""
        asked = httpx.URL(self._url)
        if self._token and (
            request.url.scheme == "https" or (request.url.scheme, request.url.host) == (asked.scheme, asked.host)
        ):
            request.headers["Authorization"] = f"Bearer {self._token}"

    def _blocks(self, response: httpx.Response) -> Iterator[Block]:
        blocks = Blocks(self.last_id, self._limits.event_bytes_max)
        for chunk in response.iter_bytes():
            for block in blocks.feed(chunk):
                yield block
                # Only behind its event: one that is not handed on is asked for again.
                self.last_id = block.last_id
                self._failures = 0
            if blocks.retry_s is not None:
                self._retry_s = blocks.retry_s

    def _judge(self, response: httpx.Response) -> None:
        """Raise `_Lost` or `SourceRefused` where the response is no event stream."""
        code = response.status_code
        if code in _LATER or code >= 500:
            raise _Lost(f"HTTP {code}", retry_after_s(response.headers.get("Retry-After"), time.time()))
        self._not_found += code == httpx.codes.NOT_FOUND
        if self.last_id and (code in _UNKNOWN_ID or self._not_found == NOT_FOUND_MAX):
            log.warning("source does not know our last id, reading from where it is", source=self._state.name)
            self.last_id = ""
            self._is_id_unknown = True
            raise _Lost(f"HTTP {code} to our last id")
        if code != httpx.codes.OK:
            hint = "; it wants a valid token: --mastodon-token" if self._token is not None and code in _NO_ENTRY else ""
            raise self._refusal(f"{self._state.name} answers HTTP {code} {response.reason_phrase}{hint}")
        content = response.headers.get("Content-Type", "")
        if content.partition(";")[0].strip().lower() != "text/event-stream":
            raise self._refusal(f"{self._state.name} is no event stream: its Content-Type is {content or 'missing'!r}")

    def _refusal(self, reason: str) -> _Lost | SourceRefused:
        return _Lost(reason) if self.last_id or self._state.connections else SourceRefused(reason)

    def _found(self) -> None:
        self._state.becomes("reading")
        has_missed = not self.last_id and (self._state.connections > 0 or self._is_id_unknown)
        if self._lost_at is not None:
            away_s = round(time.monotonic() - self._lost_at, 1)
            resumed = _MISSED if has_missed else "behind the last id" if self.last_id else "for the first time"
            log.info("source is back", source=self._state.name, away_s=away_s, resumed=resumed)
        self._state.gaps += has_missed
        self._state.connections += 1
        self._lost_at, self._is_id_unknown, self._not_found = None, False, 0

    def _wait(self, lost: _Lost) -> None:
        self._failures += 1
        asked = min(max(lost.wait_s or 0.0, self._retry_s), ASKED_MAX * self._limits.pause_max_s)
        pause = pause_s(self._failures, self._limits.pause_s, self._limits.pause_max_s, random.random, asked)
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            log.warning("source is lost, connecting again", source=self._state.name, reason=str(lost))
        self._state.becomes("waiting", f"{lost}; next try in {pause:.1f} s")
        self._stopped.wait(pause)


def too_large(bytes_max: int) -> str:
    """Say why an event is not taken."""
    return f"the event is larger than {bytes_max} bytes"


def arrivals(blocks: Iterable[Block], bytes_max: int) -> Iterator[Arrival]:
    """Yield the events that blocks hold; the next block is asked for when the event of the one before is done with."""
    for block in blocks:
        if block.is_cut:
            yield Arrival(RawEvent(block.body, fault=too_large(bytes_max)), block.last_id)
        elif (data := _only_data(block.body)) is not None:
            yield Arrival(RawEvent(data), block.last_id)
        elif b"data" in block.body:
            # Latin-1 gives each byte back as it was. The worker decodes; here no text is made of what may be any bytes.
            for event in SSEClient(iter([block.body]), char_enc="latin-1").events():
                yield Arrival(RawEvent(event.data.encode("latin-1"), _name(event.event)), block.last_id)


def _only_data(body: bytes) -> bytes | None:
    """Return the data of an event that is one line of it and nothing else, as tweets are, else None.

    It is what sseclient-py would return, at a tenth of its time: it goes over each byte some five times.
    """
    is_one = body.startswith(b"data: ") and body.find(b"\n") == len(body) - 2
    return body[6:-2] if is_one else None


def _name(event: str) -> str:
    event = event[:NAME_BYTES_MAX]
    return event if event.isascii() else event.encode("latin-1").decode("utf-8", "replace")
