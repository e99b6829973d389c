"""What a source is to the rest: a name, what its events look like, and something to read them from."""

from collections.abc import Callable, Iterator
from typing import Literal, Protocol

from msgspec import Struct

from sse_ingest.handover import RawEvent
from sse_ingest.shapes import Shape

__all__ = ["Arrival", "Feed", "Source", "SourceRefused", "SourceState", "State"]

State = Literal["stopped", "connecting", "reading", "waiting", "ended", "failed"]


class SourceRefused(Exception):
    """The source cannot be read, and trying again will not help; the text says why in one sentence."""


class Arrival(Struct, gc=False):
    """An event and the id that a reconnect behind it would send ("" where the source has none)."""

    event: RawEvent
    last_id: str = ""


class SourceState(Struct):
    """What a source is doing, for people; written by its reader's thread."""

    name: str
    state: State = "stopped"
    reason: str = ""
    connections: int = 0
    gaps: int = 0

    def becomes(self, state: State, reason: str = "") -> None:
        """Note the state and why."""
        self.state, self.reason = state, reason


class Feed(Protocol):
    """Events of a source, read by one thread. The iteration ends for good, or because of `close` from another thread."""

    def __iter__(self) -> Iterator[Arrival]: ...

    def close(self) -> None:
        """End the iteration soon, also where it waits."""


class Source(Struct, frozen=True):
    """Where events come from. `open_feed` takes the state to report to and the id to go on behind."""

    name: str
    shape: Shape
    origin: str
    open_feed: Callable[[SourceState, str], Feed]
