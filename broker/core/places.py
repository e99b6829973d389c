"""The places of replies that wait, in the order of replies of one connection."""

from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from tweetwire.protocol.errors import Refusal

__all__ = ["PLACE_BYTES", "Answer", "Awaited", "AwaitedRecord", "Place", "Wait", "confirmation", "held_bytes"]

PLACE_BYTES: Final = 200
"""The approximate memory that a waiting reply takes besides its bytes."""


class Wait(Protocol):
    """A further condition for the confirmations of a topic's events, besides the log."""

    @property
    def end(self) -> int:
        """The offset below which events are confirmed now."""
        ...

    def promised(self, first: int, last: int, lesser: str) -> list[tuple[int, int, str]]:
        """Return runs (first, last, promise) of events that are confirmed now."""
        ...

    def park(self, session: Any, first: int) -> None:
        """Keep a session whose next reply waits for the event at `first`."""
        ...


@dataclass(slots=True)
class Awaited:
    """The place of a confirmation in the order of replies: of the events `first` to `last` of a topic.

    If `reply` is given, it is sent in place of the usual confirmation.

    The events have `size` bytes of lines. If there is a `wait`, the confirmation waits for it, and `reply` does not yet have
    the promise and the line end.
    """

    topic: str
    first: int
    last: int
    reply: bytes | None = None
    refusal: Refusal | None = None
    size: int = 0
    wait: Wait | None = None


@dataclass(slots=True)
class AwaitedRecord:
    """The place of a reply that waits until the disk has record number `ticket`."""

    ticket: int
    reply: bytes


class Answer:
    """The place of a reply of about `size` bytes, which is sent once `lines` is set. Later replies wait for it."""

    __slots__ = ("lines", "size")

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.lines: bytes | None = None


Place: TypeAlias = bytes | Awaited | AwaitedRecord | Answer


def held_bytes(place: Place) -> int:
    """Return the approximate memory of a place and its reply, in bytes. It stays constant until the reply is sent."""
    if isinstance(place, bytes):
        return PLACE_BYTES + len(place)
    return PLACE_BYTES + (place.size if isinstance(place, Answer) else len(getattr(place, "reply", None) or b""))


def confirmation(place: Awaited, promise: str) -> bytes:
    """Return the reply of a place whose events are confirmed now. `promise` is that of the broker."""
    if place.wait is None:
        return place.reply or _confirmed(place.topic, place.first, place.last, promise)
    runs = place.wait.promised(place.first, place.last, promise)
    if place.reply is not None:
        return b"%b %b\n" % (place.reply, runs[0][2].encode())
    return b"".join(_confirmed(place.topic, *run) for run in runs)


def _confirmed(topic: str, first: int, last: int, promise: str) -> bytes:
    offsets = f"{first}" if first == last else f"{first}-{last}"
    return f"+OK pub {topic} {offsets} {promise}\n".encode()
