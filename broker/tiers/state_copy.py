"""The broker's state at one moment, for the bucket. It holds no event, and is no newer than the lines beside it."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from broker.core import Broker, Topic
from broker.journal.records import Record
from broker.journal.snapshot import encode_snapshot
from broker.log import CommitLog

__all__ = ["FIRST_JOURNAL", "StateCopy", "copy_state", "durable_topics", "end_open_segments"]

FIRST_JOURNAL = 1
"""The journal that continues a restored snapshot: the first one that a new folder makes."""
_EVER = 1 << 63


class StateCopy(NamedTuple):
    """The records of the whole state, and the end of each topic's log, at the moment `taken_ms`."""

    records: list[Record]
    visible: dict[Topic, int]
    records_kept: int
    taken_ms: int

    @property
    def by_name(self) -> dict[str, Topic]:
        """The topics at that moment, by name."""
        return {topic.name: topic for topic in self.visible}

    def encode(self) -> bytes:
        """Return the records in the form of a snapshot of a data folder."""
        return encode_snapshot(FIRST_JOURNAL, self.records)

    def is_current(self, broker: Broker) -> bool:
        """Return whether nothing has changed since the copy was made."""
        return self.records_kept == broker.work.records_kept and self.visible == {
            topic: topic.visible for topic in durable_topics(broker)
        }


def copy_state(broker: Broker) -> StateCopy:
    """Copy the state. Call this on the event loop, between two decisions of the core."""
    visible = {topic: topic.visible for topic in durable_topics(broker)}
    return StateCopy(broker.records(), visible, broker.work.records_kept, time.time_ns() // 1_000_000)


def durable_topics(broker: Broker) -> list[Topic]:
    """Return the topics whose log is on the disk."""
    return [topic for topic in broker.topics.values() if isinstance(topic.log, CommitLog)]


def end_open_segments(logs: Iterable[tuple[CommitLog, int]]) -> None:
    """End the open segment of each log, so that all events below the given offset are in sealed segments.

    Call this in a thread. Raises OSError, and also if a log cannot end its segment now.
    """
    for log, visible in logs:
        log.end_older(_EVER)
        if log.segments[-1].first < visible:
            raise OSError(None, f"cannot end the open segment of {log.directory.name} now")
