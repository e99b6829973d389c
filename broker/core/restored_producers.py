"""Restore the producers of a topic from a snapshot and from the events after it.

Find the events with times among these.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET

from broker.core.topic.kept_schedule import TimedPlace, timed_place
from broker.core.topic.producers import Producer
from broker.core.topic.topic import Topic
from broker.journal.records import ProducersRecord
from tweetwire.protocol.events import StoredEvent, decode_stored

__all__ = ["restore_producers"]

_READ_BYTES: Final = 4 << 20


def restore_producers(topic: Topic, record: ProducersRecord | None, forgotten: Mapping[str, int]) -> list[TimedPlace]:
    """Restore the kept producers, and read the later events of the log. Return those that have times.

    `forgotten` has an offset for each forgotten producer: events below it do not restore the producer.
    """
    timed: list[TimedPlace] = []
    at = topic.log.earliest
    if record is not None and record.scanned <= topic.visible:
        at = max(at, record.scanned)
        for name, (offset, sequence, checkpoint) in record.table.items():
            topic.producers.accepted[name] = Producer(offset, sequence, checkpoint)
    while at < topic.visible:
        lines, at, _ = topic.log.read(at, topic.visible - at, _READ_BYTES)
        for line in lines:
            if b'"producer":' in line:
                _accept(topic, line, forgotten)
            if (place := timed_place(line)) is not None:
                timed.append(place)
    topic.producers.recount()
    topic.producers.begin_write()
    topic.producers.stored = dict(topic.producers.accepted)
    topic.producers.note_written()
    return timed


def _accept(topic: Topic, line: bytes, forgotten: Mapping[str, int]) -> None:
    try:
        event: StoredEvent = decode_stored(line)
    except msgspec.MsgspecError:
        return
    if event.producer is not UNSET and event.offset >= forgotten.get(event.producer, 0):
        topic.producers.accept(event, event.offset)
