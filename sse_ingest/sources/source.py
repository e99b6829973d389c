"""The interface of a source: a name, the shape of its events, and a feed of them."""

from collections.abc import Callable, Iterator
from typing import Literal, Protocol

from msgspec import Struct

from sse_ingest.handover import RawEvent
from sse_ingest.shapes import Shape

__all__ = ["Arrival", "Feed", "Source", "SourceRefused", "SourceState", "State"]

State = Literal["stopped", "connecting", "reading", "waiting", "ended", "failed"]


class SourceRefused(Exception):
    """The source cannot be read, and another try will not help; the text is one sentence about the cause."""


class Arrival(Struct, gc=False):
    """An event, and the id that a reconnect after it would send ("" if the source has no ids)."""

    event: RawEvent
    last_id: str = ""


class SourceState(Struct):
    """The state of a source, for people; written by its reader's thread."""

    name: str
    state: State = "stopped"
    reason: str = ""
    connections: int = 0
    gaps: int = 0

    def becomes(self, state: State, reason: str = "") -> None:
        """Set the state and its reason."""
        self.state, self.reason = state, reason


class Feed(Protocol):
    """The events of a source, read by one thread.

    The iteration ends if no event will follow, or after `close` from another thread.
    """

    def __iter__(self) -> Iterator[Arrival]: ...

    def close(self) -> None:
        """End the iteration soon, even while it waits."""


class Source(Struct, frozen=True):
    """A source of events. `open_feed` takes the state that it must update, and the id after which to continue."""

    name: str
    shape: Shape
    origin: str
    open_feed: Callable[[SourceState, str], Feed]
