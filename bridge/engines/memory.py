"""A central stream in memory: the double of an engine, for tests of the loops and of the contract.

The double of a registry is in `bridge.engines.memory_registry`.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise

import anyio
import anyio.lowlevel

from bridge.central import (
    Arrival,
    CentralLost,
    EngineUnreachable,
    EntriesRemoved,
    Found,
    NotThereYet,
    PositionMoved,
    Record,
    RecordRefused,
    Source,
)

__all__ = ["MemoryDestination", "MemoryOrigin", "MemoryStream"]

_READ_MAX = 1000


class MemoryStream:
    """A stream that any number of destinations and origins share.

    Attributes:
        entries: The entries that are left. A place is a number of 20 digits, so that places sort as text.
        positions: The offset of the last event of each broker and topic.
        logs: The id of the log that each position counts in.
        centre: The identity of the stream, "" while it does not exist.
        is_down: Whether every call raises EngineUnreachable.
        lost_replies: The number of next appends that are carried out and raise EngineUnreachable.
        refuses: Whether the stream will never accept a record.
    """

    def __init__(self) -> None:
        self.entries: list[Arrival] = []
        self.positions: dict[str, int] = {}
        self.logs: dict[str, str] = {}
        self.centre = secrets.token_urlsafe(16)
        self.is_down = False
        self.lost_replies = 0
        self.refuses: Callable[[Record], bool] = lambda _: False
        self.added = 0
        self.changed = anyio.Event()

    def delete(self) -> None:
        """Delete the stream, and everything that the engine knows of it."""
        self.entries.clear()
        self.positions.clear()
        self.added = 0
        self.centre = ""

    def make(self) -> None:
        """Make the stream if it does not exist."""
        self.centre = self.centre or secrets.token_urlsafe(16)

    def add(self, value: bytes | None, fields: dict[str, str], timestamp: int = 0, key: str | None = None) -> str:
        """Add an entry, and return its place."""
        self.added += 1
        place = f"{self.added:020}"
        self.entries.append(Arrival(place, timestamp, key, value, fields))
        self.changed.set()
        self.changed = anyio.Event()
        return place

    def check(self) -> None:
        """Raise EngineUnreachable while the engine is down."""
        if self.is_down:
            raise EngineUnreachable("the engine in memory is down")


class MemoryDestination:
    """Appends to a stream in memory."""

    def __init__(self, stream: MemoryStream, topic: str, *, create: bool = True) -> None:
        self._stream = stream
        self._topic = topic
        self._create = create
        self._field = self._log = ""
        self._opened: tuple[str, int | None] = ("", None)

    async def open(self, identity: str, log: str = "") -> Found:
        """Return the position of a broker."""
        stream = self._stream
        await anyio.lowlevel.checkpoint()
        stream.check()
        if not stream.centre and not self._create:
            raise NotThereYet("the stream does not exist")
        stream.make()
        self._field, self._log = f"{identity}/{self._topic}", log
        position = stream.positions.get(self._field)
        self._opened = (stream.centre, position)
        return Found(position, stream.centre, log="" if position is None else stream.logs.get(self._field, ""))

    async def forget(self) -> None:
        """Delete our position."""
        self._stream.check()
        self._stream.positions.pop(self._field, None)
        self._opened = (self._stream.centre, None)

    async def append(self, records: Sequence[Record]) -> None:
        """Write records and the position, or nothing."""
        stream = self._stream
        await anyio.lowlevel.checkpoint()
        stream.check()
        if stream.centre != self._opened[0]:
            raise CentralLost("the stream was deleted")
        if stream.positions.get(self._field) != self._opened[1]:
            raise PositionMoved("another bridge has written")
        offsets = [record.offset for record in records]
        if any(
            first >= second
            for first, second in pairwise([-1 if self._opened[1] is None else self._opened[1], *offsets])
        ):
            raise AssertionError(f"offsets {offsets} do not grow after {self._opened[1]}")
        for record in records:
            if stream.refuses(record):
                raise RecordRefused(record.offset, "the record is refused")
        for record in records:
            names = record.fields[::2]
            fields = dict(zip(names, record.fields[1::2], strict=True))
            stream.add(record.value, fields, record.timestamp, record.key)
        stream.positions[self._field], stream.logs[self._field] = offsets[-1], self._log
        if stream.lost_replies:
            stream.lost_replies -= 1
            raise EngineUnreachable("the reply was lost")
        self._opened = (stream.centre, offsets[-1])

    async def entries(self) -> AsyncIterator[list[Arrival]]:
        """Yield the whole stream."""
        self._stream.check()
        yield list(self._stream.entries)

    async def aclose(self) -> None:
        """Do nothing, since there is no connection."""


class MemoryOrigin:
    """Reads a stream in memory."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream
        self._expected = ""

    async def open(self, position: str, centre: str, *, is_exact: bool) -> Source:
        """Look whether reading can continue after a position."""
        stream = self._stream
        await anyio.lowlevel.checkpoint()
        stream.check()
        if not stream.centre and not position:
            raise NotThereYet("the stream does not exist")
        last = f"{stream.added:020}" if stream.added else ""
        is_other = bool(centre) and centre != stream.centre
        self._expected = position if is_exact else ""
        return Source(stream.centre, last, is_replaced=bool(position) and (is_other or last < position))

    async def read(self, after: str, wait_s: float) -> list[Arrival]:
        """Return the entries after a place."""
        with anyio.move_on_after(wait_s):
            while not any(entry.place > after for entry in self._stream.entries):
                self._stream.check()
                await self._stream.changed.wait()
        self._stream.check()
        found = [entry for entry in self._stream.entries if entry.place > after][:_READ_MAX]
        if found and after and self._expected == after and all(one.place != after for one in self._stream.entries):
            self._expected = ""
            raise EntriesRemoved(after, found[0].place)
        if found:
            self._expected = found[-1].place
        return found

    def check_place(self, text: str) -> str:
        """Return the place in 20 digits."""
        if not text.isdecimal():
            raise ValueError("write earliest, latest or a number")
        return text.zfill(20)

    async def entries(self) -> AsyncIterator[list[Arrival]]:
        """Yield the whole stream."""
        self._stream.check()
        yield list(self._stream.entries)

    async def aclose(self) -> None:
        """Do nothing, since there is no connection."""
