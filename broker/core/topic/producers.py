"""The producers of a topic and their last sequences, which make a repeated publish harmless.

There are two tables, since an event is accepted before it is on the disk. The next event is compared with `accepted`; replies
show `stored`. When a write fails, `accepted` is set back to `stored`.

Producers stay in memory, so there are three limits: the size of a checkpoint, the number of a topic's producers, and the memory
of the producers of all topics.
"""

from typing import Final

from msgspec import UNSET, Struct

from broker.core.gaps import Gaps
from broker.core.topic.claims import Claims
from broker.journal.records import ProducersRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent, StoredEvent

__all__ = ["Producer", "ProducerRoom", "Producers"]

PRODUCERS_MAX: Final = 10_000
CHECKPOINT_BYTES_MAX: Final = 64 << 10
ROOM_BYTES: Final = 64 << 20
PRODUCER_BYTES: Final = 500
"""The approximate memory of a producer, without its name and its checkpoint."""


class Producer(Struct, frozen=True):
    """The offset of a producer's last event on a topic (-1 for none), that event's sequence, and the latest checkpoint."""

    offset: int = -1
    sequence: int | None = None
    checkpoint: str | None = None


class ProducerRoom:
    """The approximate memory that the producers of all topics take, which is at most `bytes_max`."""

    def __init__(self, bytes_max: int = ROOM_BYTES) -> None:
        self.bytes_max = bytes_max
        self.used = 0


class Producers:
    """The producers of one topic, which use a part of `room`."""

    def __init__(self, room: ProducerRoom | None = None) -> None:
        self.accepted: dict[str, Producer] = {}
        self.stored: dict[str, Producer] = {}
        # The lowest sequence of each producer in the pending batch
        self._pending_from: dict[str, int] = {}
        self.gaps: Gaps[str] = Gaps()
        self.claims = Claims()
        self._touched: set[str] = set()
        self._writing: dict[str, Producer] = {}
        self._writing_from: dict[str, int] = {}
        self._room = ProducerRoom() if room is None else room
        self._bytes = 0

    def check_room(self, name: str, checkpoint: str | None) -> None:
        """Raise Refusal ``bad_event`` if a checkpoint is too long, ``too_many`` if there is no room for a producer."""
        if checkpoint is not None and len(checkpoint.encode()) > CHECKPOINT_BYTES_MAX:
            raise Refusal("bad_event", f"the checkpoint is longer than {CHECKPOINT_BYTES_MAX} bytes")
        known = self.accepted.get(name)
        advice = "an administrator can forget some: forget <topic> <producer>"
        if known is None and len(self.accepted) >= PRODUCERS_MAX:
            raise Refusal("too_many", f"the topic has {PRODUCERS_MAX} producers; {advice}")
        grown = _size(name, Producer(checkpoint=checkpoint)) - (0 if known is None else _size(name, known))
        if grown > 0 and self._room.used + grown > self._room.bytes_max:
            raise Refusal("too_many", f"the producers of all topics take {self._room.bytes_max} bytes; {advice}")

    def duplicate_of(self, event: IncomingEvent, topic: str) -> int | None:
        """Return the offset of the producer's last event if `event` is a duplicate, else None.

        `topic` is the name that a refusal shows. Raises Refusal ``out_of_sequence`` if an earlier event was refused or could
        not be stored. If the later event was accepted, the earlier one would count as a duplicate forever.
        """
        if event.producer is UNSET or event.sequence is UNSET:
            return None
        if self.gaps.of:
            self.gaps.check(event.producer, topic, event.producer, event.sequence)
        known = self.accepted.get(event.producer)
        if known is None or known.sequence is None or event.sequence > known.sequence:
            return None
        return known.offset

    def refuse(self, event: IncomingEvent) -> None:
        """Note an event that is refused for its content. Later sequences are refused until it is sent again."""
        if event.producer is not UNSET and event.sequence is not UNSET:
            self.gaps.open(event.producer, event.sequence)

    def last_sequence(self, event: IncomingEvent) -> int | None:
        """Return the last accepted sequence of an event's producer, None if it has none."""
        return None if event.producer is UNSET else self.accepted.get(event.producer, _NONE).sequence

    def accept(self, event: IncomingEvent | StoredEvent, offset: int) -> None:
        """Note an event that will be written at `offset`."""
        if event.producer is not UNSET:
            known = self.accepted.get(event.producer, _NONE)
            self.accepted[event.producer] = accepted = Producer(
                offset,
                known.sequence if event.sequence is UNSET else event.sequence,
                known.checkpoint if event.checkpoint is UNSET else event.checkpoint,
            )
            if known is _NONE or event.checkpoint is not UNSET:
                self._take_room(event.producer, known, accepted)
            self._touched.add(event.producer)
            if event.sequence is not UNSET:
                if self.gaps.of:
                    self.gaps.note(event.producer, event.sequence)
                self._pending_from.setdefault(event.producer, event.sequence)

    def begin_write(self) -> None:
        """Note that the write of all events accepted so far has begun."""
        self._writing = {name: self.accepted[name] for name in self._touched}
        self._writing_from, self._pending_from = self._pending_from, {}
        self._touched.clear()

    def note_written(self) -> None:
        """Note that the events being written are stored."""
        self.stored.update(self._writing)
        self._writing, self._writing_from = {}, {}

    def fall_back(self) -> None:
        """Forget accepted events that could not be stored."""
        for name, first in (self._pending_from | self._writing_from).items():
            self.gaps.open(name, first, self.accepted[name].sequence)
        self.accepted = dict(self.stored)
        self.recount()
        self._touched.clear()
        self._writing, self._writing_from, self._pending_from = {}, {}, {}

    def set_checkpoint(self, name: str, value: str) -> int:
        """Move a checkpoint without an event. Return the offset of the producer's last event (-1 for none)."""
        known = self.accepted.get(name, _NONE)
        self._take_room(name, known, Producer(checkpoint=value))
        for table in (self.accepted, self.stored) if name not in self._writing else (self.accepted, self._writing):
            known = table.get(name, _NONE)
            table[name] = Producer(known.offset, known.sequence, value)
        return self.accepted[name].offset

    def restore_checkpoint(self, name: str, offset: int, value: str) -> None:
        """Restore a kept checkpoint, unless its event was lost or a later event has another one."""
        if self.accepted.get(name, _NONE).offset == offset:
            self.set_checkpoint(name, value)

    def claim(self, name: str) -> int:
        """Give a producer, which may be new, the next epoch, and return it. Raises Refusal ``too_many``.

        The new epoch begins after the stored events, so no refused event of an earlier epoch has to be sent again.
        """
        self._make(name)
        self.gaps.forget(name)
        return self.claims.advance(name)

    def restore_claim(self, name: str, epoch: int) -> None:
        """Restore the epoch of a producer."""
        self._make(name)
        self.claims.epochs[name] = epoch

    def forget(self, name: str) -> None:
        """Forget a producer. Raises Refusal ``bad_arguments`` if it is unknown, ``busy`` while its event is being written."""
        if name in self._touched or name in self._writing:
            raise Refusal("busy", f"an event of {name} is being written; try again")
        if name not in self.accepted:
            raise Refusal("bad_arguments", f"the topic has no producer {name}")
        self.gaps.forget(name)
        self.claims.forget(name)
        del self.accepted[name]
        self.stored.pop(name, None)
        self.recount()

    def recount(self) -> None:
        """Take the room that the current producers need, no more and no less."""
        needed = sum(_size(name, producer) for name, producer in self.accepted.items())
        self._room.used += needed - self._bytes
        self._bytes = needed

    def record(self, topic: str, scanned: int) -> ProducersRecord:
        """Return the record of all producers of a topic, from the events below offset `scanned`."""
        table = {name: (one.offset, one.sequence, one.checkpoint) for name, one in self.stored.items()}
        return ProducersRecord(topic, scanned, table)

    def forget_all(self) -> None:
        """Release the room of a dropped topic."""
        self._room.used -= self._bytes
        self._bytes = 0

    def _make(self, name: str) -> None:
        """Add a producer that has no event and no checkpoint yet. Raises Refusal ``too_many``."""
        if name not in self.accepted:
            self.check_room(name, None)
            self.accepted[name] = self.stored[name] = made = Producer()
            self._take_room(name, _NONE, made)

    def _take_room(self, name: str, before: Producer, after: Producer) -> None:
        grown = _size(name, after) - (0 if before is _NONE else _size(name, before))
        self._bytes += grown
        self._room.used += grown


def _size(name: str, producer: Producer) -> int:
    return PRODUCER_BYTES + len(name) + len(producer.checkpoint or "")


_NONE = Producer()
