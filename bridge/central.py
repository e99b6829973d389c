"""The contracts of a central engine: `Destination` for a route outwards, `Origin` for a route inwards, and `Registry`.

An engine stores our position in the same write as the records, and refuses a write whose position is not the stored one. So a
write whose reply was lost can be examined: the position shows whether it was carried out. Two bridges on one route cannot write
a record twice, because the second write is refused.

A `Registry` is apart from the routes: there, the brokers that share the engine leave heartbeats for each other.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

__all__ = [
    "BROKERS_MAX",
    "HEARTBEAT_BYTES_MAX",
    "KEPT_S",
    "Arrival",
    "CentralLost",
    "Destination",
    "EngineRefused",
    "EngineUnreachable",
    "EntriesRemoved",
    "Found",
    "NotThereYet",
    "Origin",
    "Partitions",
    "PositionMoved",
    "Record",
    "RecordRefused",
    "Registry",
    "Sighting",
    "Source",
]

BROKERS_MAX: Final = 1000
"""The most brokers of a registry."""
HEARTBEAT_BYTES_MAX: Final = 64 << 10
KEPT_S: Final = 24 * 3600.0
"""How long a registry keeps the last heartbeat of a broker that is silent, in seconds."""


class Record(Struct, frozen=True, gc=False):
    """An event on its way to an engine.

    Attributes:
        offset: The offset in the topic's log. It becomes our position in the engine.
        timestamp: The event's date, in milliseconds since 1970 UTC.
        key: The event's key, None if it has none.
        value: The payload. None is a tombstone.
        fields: Names and values in turn: the attributes of the event, ready to be sent.
    """

    offset: int
    timestamp: int
    key: str | None
    value: bytes | None
    fields: list[str]


class Arrival(Struct, frozen=True, gc=False):
    """An entry that was read from an engine.

    Attributes:
        place: The engine's position of the entry, as text. Reading continues after it.
        timestamp: The engine's time of the entry, in milliseconds since 1970 UTC.
        key: The key in the engine, None if it has none.
        value: The payload. None is a tombstone.
        fields: The entry's attributes.
        lane: The part of the stream within which the entries are in order, such as a partition.
        follows_removed: Whether entries of the lane before this one may have been removed by a limit of the stream.
    """

    place: str
    timestamp: int
    key: str | None
    value: bytes | None
    fields: Mapping[str, str]
    lane: str = ""
    follows_removed: bool = False


class Found(Struct, frozen=True):
    """The state of a central stream or topic when it is opened.

    Attributes:
        position: The offset of our last event in it, None if it has none.
        centre: An identity of the stream. It changes when the stream is deleted and made again.
        is_replaced: Whether our position belongs to an older stream of this name.
        has_expired: Whether the position is missing because the stream has removed all of our messages by its limits.
        log: The id of the topic's log that the position counts in, "" if the position has none.
    """

    position: int | None
    centre: str
    is_replaced: bool = False
    has_expired: bool = False
    log: str = ""


class Source(Struct, frozen=True):
    """The state of a central stream that is about to be read.

    Attributes:
        centre: An identity of the stream, as in `Found`.
        last: The place of its newest entry, which may have been deleted since; "" if there was never one.
        is_replaced: Whether the stream was deleted and made again since the position was stored.
    """

    centre: str
    last: str
    is_replaced: bool = False


class Sighting(Struct, frozen=True):
    """The newest heartbeat of a broker.

    Attributes:
        broker: The identity of the broker.
        heartbeat: Its content.
        age_s: How long ago the engine got it, in seconds. Only the engine's clock measures it.
    """

    broker: str
    heartbeat: bytes
    age_s: float


class EngineUnreachable(Exception):
    """The engine does not answer, or the connection was lost. A write may or may not have been carried out."""


class EngineRefused(EngineUnreachable):
    """The engine answers with a refusal that may be temporary, such as a full memory or a missing permission."""


class NotThereYet(EngineUnreachable):
    """The stream or topic does not exist yet, and the route may not make it."""


class PositionMoved(Exception):
    """The stored position is not the expected one: another bridge has written, or an earlier write had succeeded."""


class CentralLost(Exception):
    """The stream was deleted while the route was open, and our position with it."""


class EntriesRemoved(Exception):
    """Entries after the position may have been removed before they were read.

    Attributes:
        after: The position.
        before: The place of the first entry that is left.
    """

    def __init__(self, after: str, before: str) -> None:
        super().__init__(f"entries between {after} and {before} may have been removed before they were read")
        self.after = after
        self.before = before


class RecordRefused(Exception):
    """The engine will never accept one record.

    Attributes:
        offset: The offset of the record. The records before it may be sent again.
    """

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset


class Destination(Protocol):
    """Where a route outwards writes. One task uses it, and calls `open` again after every exception but RecordRefused.

    After RecordRefused, `append` can be called again with other records.
    """

    async def open(self, identity: str, log: str = "") -> Found:
        """Connect, and return the position of the broker `identity`.

        Args:
            identity: The identity under which the broker is known in the engine.
            log: The id of the topic's log, "" if the broker shows none. Each append stores it with the position.

        Raises:
            EngineUnreachable: The engine does not answer, or refuses for now.
            StartError: The engine will never accept this route; the text says what to change.
        """

    async def forget(self) -> None:
        """Delete our position, so that the next append is the first one. Raises the errors of `open`."""

    async def append(self, records: Sequence[Record]) -> None:
        """Write records and the new position, which is the offset of the last record: all of them or nothing.

        The position must be the one that `open` found, or that of the last append.

        Raises:
            PositionMoved: The stored position is another one. Nothing was written.
            CentralLost: The stream was deleted. Nothing was written.
            RecordRefused: The engine will never accept one of the records. Nothing was written.
            EngineUnreachable: It is unknown whether the records were written.
        """

    def entries(self) -> AsyncIterator[list[Arrival]]:
        """Read the whole stream from its first entry to its present end. Raises EngineUnreachable."""

    async def aclose(self) -> None:
        """Close the connection. `open` makes a new one."""


class Partitions(Protocol):
    """A central topic whose entries are in order only within each of its partitions. Each partition is an origin."""

    async def count(self) -> int:
        """Return the number of partitions, which may grow. Raises EngineUnreachable, also as NotThereYet."""

    def origin(self, partition: int) -> "Origin":
        """Return a partition as an origin, not yet connected. Partitions are numbered from 0."""

    async def aclose(self) -> None:
        """Close the connection. `count` makes a new one."""


class Origin(Protocol):
    """Where a route inwards reads. One task uses it, and calls `open` again after every exception."""

    async def open(self, position: str, centre: str, *, is_exact: bool) -> Source:
        """Connect, and look whether reading can continue after `position`; "" means that there is no position.

        Args:
            position: The place of the last entry that the broker has.
            centre: The identity of the stream when the position was stored, "" if it is not known.
            is_exact: Whether the stream should still have the entry at the position. If it does not, `read` reports it.

        Raises:
            EngineUnreachable: The engine does not answer, or the stream does not exist yet.
            StartError: The engine will never serve this route; the text says what to change.
        """

    async def read(self, after: str, wait_s: float) -> list[Arrival]:
        """Read the entries after a place; "" means from the first entry. Waits up to `wait_s` seconds for an entry.

        Raises:
            EntriesRemoved: Entries may have been removed unread. The same call can be repeated, and continues after them.
            EngineUnreachable: The engine does not answer.
        """

    def check_place(self, text: str) -> str:
        """Return a place that a user wrote as `begin`, in the engine's form. Raises ValueError."""

    def entries(self) -> AsyncIterator[list[Arrival]]:
        """Read the whole stream from its first entry to its present end. Raises EngineUnreachable."""

    async def aclose(self) -> None:
        """Close the connection. `open` makes a new one."""


class Registry(Protocol):
    """Where the brokers that share an engine leave heartbeats. One task uses it, and calls `open` again after every exception.

    It keeps one heartbeat a broker: at most `BROKERS_MAX`, of which the oldest go first, and each for a limited time. No route
    needs it, so the bridge continues without it.
    """

    async def open(self) -> None:
        """Connect. Raises EngineUnreachable, or StartError if the engine will never have a registry for this user."""

    async def announce(self, broker: str, heartbeat: bytes) -> None:
        """Replace the heartbeat of a broker, which has at most `HEARTBEAT_BYTES_MAX` bytes. Raises the errors of `open`."""

    async def sightings(self) -> list[Sighting]:
        """Return the newest heartbeat of each broker, in no order. Raises the errors of `open`."""

    async def aclose(self) -> None:
        """Close the connection. `open` makes a new one."""
