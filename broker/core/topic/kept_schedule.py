"""Convert a topic's schedule to a record of the snapshot, and the record and younger events of the log to a schedule.

An event that a subscription has had is released at the start, whatever its due time, since the system's clock may have been set
back. Always true after a start: a scheduled event was delivered to no durable subscription.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from broker.core.topic.kept import KeptSubscription
from broker.core.topic.topic import Topic
from broker.journal.records import ScheduleRecord
from tweetwire.protocol.timing import times_of

__all__ = ["TimedPlace", "restore_schedule", "schedule_records", "timed_place"]


class TimedPlace(NamedTuple):
    """A stored event with a due time or an expiry (ms)."""

    offset: int
    due_ms: int | None
    expires_ms: int | None
    priority: int


class _Place(Struct):
    offset: int
    priority: int = 0


_decode_place = msgspec.json.Decoder(_Place).decode


def schedule_records(topic: Topic) -> list[ScheduleRecord]:
    """Return the record of a topic's scheduled and expiring events, if it has any."""
    schedule = topic.schedule
    if not schedule.is_used:
        return []
    expiring = (schedule.expiring.start, schedule.expiring.stop - 1) if schedule.expiring else None
    return [ScheduleRecord(topic.name, *schedule.columns(), expiring)]


def timed_place(line: bytes) -> TimedPlace | None:
    """Return the place and the times of a stored line, None if the line has no times."""
    due_ms, expires_ms = times_of(line)
    if due_ms is None and expires_ms is None:
        return None
    try:
        place = _decode_place(line)
    except msgspec.MsgspecError:
        return None
    return TimedPlace(place.offset, due_ms, expires_ms, place.priority)


def restore_schedule(
    topic: Topic,
    record: ScheduleRecord | None,
    read: Sequence[TimedPlace],
    kept: Iterable[KeptSubscription],
    now_ms: int,
) -> dict[int, int]:
    """Schedule the events of `record`, and those of the events `read` from the log that are not due at `now_ms`.

    Returns:
        The priority of each event of `record` that is released now, by offset.
    """
    date_ms = topic.dates.of(now_ms)
    old = [] if record is None else list(_events(record, topic))
    # A purge may have hidden events after they were read.
    read = [one for one in read if one.offset >= topic.log.earliest]
    after = old[-1][0] if old else -1
    waiting = list(old)
    waiting += (
        (one.offset, one.due_ms, one.priority)
        for one in read
        if one.due_ms is not None and one.due_ms > date_ms and one.offset > after
    )
    delivered = _delivered(waiting, kept)
    expiring = [one.offset for one in read if one.expires_ms is not None]
    expiring += record.expiring if record is not None and record.expiring else ()
    topic.schedule.restore(
        (event for event in waiting if event[0] not in delivered),
        range(max(min(expiring), topic.log.earliest), max(expiring) + 1) if expiring else range(0),
    )
    return {offset: priority for offset, _, priority in old if offset in delivered}


def _events(record: ScheduleRecord, topic: Topic) -> Iterator[tuple[int, int, int]]:
    """Yield those events of a record that the log has."""
    earliest, visible = topic.log.earliest, topic.visible
    return (event for event in record.events() if earliest <= event[0] < visible)


def _delivered(waiting: Sequence[tuple[int, int, int]], kept: Iterable[KeptSubscription]) -> set[int]:
    """Return the offsets of `waiting` that a subscription has settled, or tried to deliver."""
    if not waiting:
        return set()
    found: set[int] = set()
    offsets = [offset for offset, _, _ in waiting]
    for one in kept:
        for settled in one.settled:
            for priority, runs in settled.runs.items():
                for first, last in runs:
                    at = bisect_left(offsets, first)
                    while at < len(offsets) and offsets[at] <= last:
                        if waiting[at][2] == priority:
                            found.add(offsets[at])
                        at += 1
        record = one.record
        found.update(record.attempts, (offset for offset, _ in (*record.dead, *record.dying)))
        if not record.has_schedule:
            # The record is younger than the schedule, and names all its unsettled events.
            open_ = set(record.open)
            found.update(
                offset
                for offset, _, priority in waiting
                if record.start <= offset < record.floors.get(priority, record.floor) and offset not in open_
            )
    return found
