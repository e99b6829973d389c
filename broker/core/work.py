"""What decisions leave to do for those who have files and sockets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.state import Record

if TYPE_CHECKING:
    from broker.core.consumer import Consumer
    from broker.core.outbox import Answer
    from broker.core.session import Session
    from broker.core.topic import Topic

__all__ = ["Fetch", "Lookup", "Reading", "Work"]


@dataclass(slots=True)
class Fetch:
    """Lines of events taken for a consumer that are no longer in memory: read them, then `Broker.fetched`."""

    consumer: "Consumer"
    offsets: list[int]


@dataclass(slots=True)
class Reading:
    """A ``read`` of up to `count` lines of about `bytes_max` bytes from offset `first`; its reply's place is `answer`."""

    session: "Session"
    topic: "Topic"
    first: int
    count: int
    bytes_max: int
    answer: "Answer"


@dataclass(slots=True)
class Lookup:
    """A reply that `look_up` makes, reading files; one after the other, then `Broker.has_looked_up`."""

    session: "Session"
    look_up: Callable[[], bytes]
    answer: "Answer"


@dataclass(slots=True)
class Work:
    """In the order it must be done: give `records` to the state, wake the writers of `topics`, send for `sessions`.

    `fetches`, `readings` and `lookups` read files, so they are for a thread.
    """

    records: list[Record] = field(default_factory=list)
    topics: "set[Topic]" = field(default_factory=set)
    sessions: "set[Session]" = field(default_factory=set)
    fetches: list[Fetch] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    must_sync_records: bool = False
    records_kept: int = 0

    def keep(self, record: Record) -> int:
        """Leave a record for the state; returns its number, counted from the start."""
        self.records.append(record)
        self.records_kept += 1
        return self.records_kept

    def take(self) -> "Work":
        """Hand over what has been left until now."""
        taken = Work(
            self.records,
            self.topics,
            self.sessions,
            self.fetches,
            self.readings,
            self.lookups,
            self.must_sync_records,
            self.records_kept,
        )
        self.records, self.topics, self.sessions = [], set(), set()
        self.fetches, self.readings, self.lookups = [], [], []
        self.must_sync_records = False
        return taken
