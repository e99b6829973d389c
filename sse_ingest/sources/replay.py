"""A recorded file as a source: JSON Lines of tweets, envelopes or notices, or a recorded event stream (``.sse``)."""

import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from sse_ingest.handover import RawEvent
from sse_ingest.sources.blocks import Blocks
from sse_ingest.sources.source import Arrival, SourceRefused, SourceState
from sse_ingest.sources.stream import arrivals, too_large
from tweetwire.protocol.errors import StartError

__all__ = ["Replay"]

_CHUNK_BYTES = 1 << 16
_HEAD_BYTES = 4096


class Replay:
    """Yields the events of a file, as fast as possible or at `rate` a second, once or repeatedly.

    `line_type` is the event type of each line of JSON Lines; an event stream names the types itself.
    """

    def __init__(
        self,
        path: Path,
        state: SourceState,
        *,
        rate: float | None,
        loop: bool,
        bytes_max: int,
        line_type: str = "message",
    ) -> None:
        self._path = path
        self._state = state
        self._rate = rate
        self._loop = loop
        self._bytes_max = bytes_max
        self._line_type = line_type
        self._stopped = threading.Event()

    @staticmethod
    def check(path: Path) -> None:
        """Raise StartError if `path` cannot be read."""
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise StartError(f"cannot replay {path}: {error.strerror}; give a file: --source replay:FILE") from error

    def __iter__(self) -> Iterator[Arrival]:
        """Yield events. Raises `SourceRefused` if the file can no longer be read."""
        self._state.becomes("reading")
        try:
            yield from self._again_and_again()
        except OSError as error:
            raise SourceRefused(f"cannot read {self._path}: {error.strerror}") from error

    def _again_and_again(self) -> Iterator[Arrival]:
        due = time.monotonic()
        while True:
            is_empty = True
            for arrival in self._once():
                is_empty = False
                if self._rate:
                    due += 1 / self._rate
                    self._stopped.wait(max(due - time.monotonic(), 0.0))
                if self._stopped.is_set():
                    return
                yield arrival
            if is_empty or not self._loop:
                return

    def close(self) -> None:
        self._stopped.set()

    def _once(self) -> Iterator[Arrival]:
        with self._path.open("rb") as file:
            if self._path.suffix == ".sse":
                blocks = Blocks(bytes_max=self._bytes_max)
                chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
                yield from arrivals(chain.from_iterable(map(blocks.feed, chunks)), self._bytes_max)
                return
            while line := file.readline(self._bytes_max + 1):
                if len(line) > self._bytes_max:
                    yield Arrival(RawEvent(line[:_HEAD_BYTES], fault=too_large(self._bytes_max)))
                    while line and not line.endswith(b"\n"):
                        line = file.readline(self._bytes_max)
                elif line.strip():
                    yield Arrival(RawEvent(line.rstrip(b"\r\n"), self._line_type))
