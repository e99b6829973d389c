"""Who publishes with sequences: what makes a repeated publish harmless.

Two tables, since a decision is taken before the disk has it: `accepted` is what the next event is compared with,
`stored` what may be told. A failed write makes the accepted one fall back to the stored one.
"""

from msgspec import UNSET, Struct

from broker.errors import Refusal
from broker.events import IncomingEvent, StoredEvent

__all__ = ["Producer", "Producers"]


class Producer(Struct, frozen=True):
    """The last event a producer has on a topic (-1 for none), its sequence, and the latest checkpoint."""

    offset: int = -1
    sequence: int | None = None
    checkpoint: str | None = None


class Producers:
    """The producers of one topic."""

    def __init__(self) -> None:
        self.accepted: dict[str, Producer] = {}
        self.stored: dict[str, Producer] = {}
        # {name: lowest sequence since} of what is pending, and of what could not be stored and has not come again
        self._pending_from: dict[str, int] = {}
        self._missing_from: dict[str, int] = {}
        self._touched: set[str] = set()
        self._writing: dict[str, Producer] = {}
        self._writing_from: dict[str, int] = {}

    def duplicate_of(self, event: IncomingEvent) -> int | None:
        """Return the offset of the producer's last event if `event` is not newer than that, else None.

        Raises Refusal ``out_of_sequence`` for what comes behind an event that could not be stored: taken in, it would
        make the lost one a duplicate for ever.
        """
        if event.producer is UNSET or event.sequence is UNSET:
            return None
        missing = self._missing_from.get(event.producer)
        if missing is not None and event.sequence > missing:
            raise Refusal("out_of_sequence", f"{event.producer} must send {missing} again, which could not be stored")
        known = self.accepted.get(event.producer)
        if known is None or known.sequence is None or event.sequence > known.sequence:
            return None
        return known.offset

    def accept(self, event: IncomingEvent | StoredEvent, offset: int) -> None:
        """Take note of an event that will be written at `offset`."""
        if event.producer is not UNSET:
            known = self.accepted.get(event.producer, _NONE)
            self.accepted[event.producer] = Producer(
                offset,
                known.sequence if event.sequence is UNSET else event.sequence,
                known.checkpoint if event.checkpoint is UNSET else event.checkpoint,
            )
            self._touched.add(event.producer)
            if event.sequence is not UNSET:
                self._missing_from.pop(event.producer, None)
                self._pending_from.setdefault(event.producer, event.sequence)

    def begin_write(self) -> None:
        """What was accepted until now is on its way to the disk."""
        self._writing = {name: self.accepted[name] for name in self._touched}
        self._writing_from, self._pending_from = self._pending_from, {}
        self._touched.clear()

    def commit(self) -> None:
        """What was on its way is stored."""
        self.stored.update(self._writing)
        self._writing, self._writing_from = {}, {}

    def fall_back(self) -> None:
        """Forget what was accepted and could not be stored."""
        self.accepted = dict(self.stored)
        self._missing_from |= self._pending_from | self._writing_from
        self._touched.clear()
        self._writing, self._writing_from, self._pending_from = {}, {}, {}

    def set_checkpoint(self, name: str, value: str) -> int:
        """Move a checkpoint without an event; returns the offset of the event that it stands behind (-1 for none)."""
        for table in (self.accepted, self.stored) if name not in self._writing else (self.accepted, self._writing):
            known = table.get(name, _NONE)
            table[name] = Producer(known.offset, known.sequence, value)
        return self.accepted[name].offset

    def restore_checkpoint(self, name: str, offset: int, value: str) -> None:
        """Take a kept checkpoint, unless its event was lost or a later event has brought another."""
        if self.accepted.get(name, _NONE).offset == offset:
            self.set_checkpoint(name, value)


_NONE = Producer()
