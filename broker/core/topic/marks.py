"""The marks of a topic: durable, named statements that another system has every event below an offset.

Always true:

- a mark only grows: an event that is below it and not excepted stays so, until the mark is forgotten;
- an excepted event stays excepted, until its mark is forgotten or retention removes the event;
- the marks of all topics take at most `MARKS_BYTES_MAX` bytes of memory.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, Final

from broker.journal.mark_records import MarkedRecord, UnmarkedRecord
from tweetwire.protocol.errors import Refusal

__all__ = ["Mark", "MarkRoom", "Marks", "note_mark"]

MARKS_MAX: Final = 16
EXCEPTED_MAX: Final = 10_000
MARKS_BYTES_MAX: Final = 16 << 20
MARK_BYTES: Final = 400
"""The approximate memory of a mark without its name, its checkpoint and its exceptions."""
EXCEPTED_BYTES: Final = 40


class MarkRoom:
    """The memory for the marks of all topics, in bytes."""

    def __init__(self) -> None:
        self.used = 0

    def check(self, size: int) -> None:
        """Raise Refusal ``too_many`` if there is no room for `size` more bytes."""
        if self.used + size > MARKS_BYTES_MAX:
            raise Refusal("too_many", f"the marks of this broker have {MARKS_BYTES_MAX} bytes; unmark some")


class Mark:
    """A mark: another system has every event below `offset`, except those at the offsets `excepted`, which are sorted."""

    __slots__ = ("checkpoint", "excepted", "name", "offset", "overtaken", "owners", "ticket")

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.excepted: list[int] = []
        self.checkpoint: str | None = None
        self.owners: tuple[str, ...] = ()
        # How many events above the mark retention or a purge has removed since the start
        self.overtaken = 0
        # The number of the mark's last record
        self.ticket = 0

    @property
    def size(self) -> int:
        """The approximate memory of the mark, in bytes."""
        return MARK_BYTES + len(self.name) + len(self.checkpoint or "") * 4 + EXCEPTED_BYTES * len(self.excepted)

    def lag(self, earliest: int, visible: int) -> int:
        """Return how many events of a log from `earliest` to `visible` are not below the mark."""
        return max(0, visible - max(self.offset, earliest))

    def excepts(self, first: int, last: int) -> list[int]:
        """Return the excepted offsets from `first` to `last`."""
        return self.excepted[bisect_left(self.excepted, first) : bisect_left(self.excepted, last + 1)]

    def drop_excepted_below(self, earliest: int) -> None:
        """Forget the exceptions for events that are no longer in the log."""
        del self.excepted[: bisect_left(self.excepted, earliest)]

    def record(self, topic: str) -> MarkedRecord:
        """Return the record that keeps the whole mark."""
        return MarkedRecord(topic, self.name, self.offset, list(self.excepted), self.checkpoint, list(self.owners))


class Marks:
    """The marks of one topic by name."""

    __slots__ = ("_room", "by_name")

    def __init__(self, room: MarkRoom | None = None) -> None:
        self.by_name: dict[str, Mark] = {}
        self._room = MarkRoom() if room is None else room

    def __iter__(self) -> Iterator[Mark]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def make(self, name: str) -> Mark:
        """Return a mark, making it at offset 0 if it is missing. Raises Refusal ``too_many``."""
        mark = self.by_name.get(name)
        if mark is None:
            mark = Mark(name)
            if len(self.by_name) >= MARKS_MAX:
                raise Refusal("too_many", f"this topic has {MARKS_MAX} marks; unmark one")
            self._room.check(mark.size)
            self.by_name[name] = mark
            self._room.used += mark.size
        return mark

    def advance(
        self, mark: Mark, offset: int, excepted: Iterable[int], checkpoint: str | None, earliest: int
    ) -> list[int]:
        """Move a mark to `offset`, which is not below the mark's own. Return the exceptions that are new.

        Exceptions below the mark are left out, since the other system has those events. Raises Refusal ``too_many``
        and then changes nothing.
        """
        new = sorted({one for one in excepted if one >= max(mark.offset, earliest)})
        self._room.used -= mark.size
        try:
            mark.drop_excepted_below(earliest)
            if len(mark.excepted) + len(new) > EXCEPTED_MAX:
                raise Refusal("too_many", f"the mark {mark.name} excepts {EXCEPTED_MAX} events of this topic")
            self._room.check(mark.size + EXCEPTED_BYTES * len(new) + 4 * len(checkpoint or ""))
            mark.offset = offset
            # All of them are at or above the offset that the mark had, so the list stays sorted.
            mark.excepted += new
            mark.checkpoint = mark.checkpoint if checkpoint is None else checkpoint
        finally:
            self._room.used += mark.size
        return new

    def forget(self, name: str) -> None:
        """Forget a mark."""
        self._room.used -= self.by_name.pop(name).size

    def forget_all(self) -> None:
        """Forget the marks of a dropped topic."""
        for name in list(self.by_name):
            self.forget(name)

    def overtake(self, earliest: int, below: int) -> dict[str, int]:
        """Note that the events from `earliest` to `below` are removed. Return how many of them each mark had not passed."""
        overtaken = {mark.name: lag for mark in self if (lag := mark.lag(earliest, below))}
        for name, count in overtaken.items():
            self.by_name[name].overtaken += count
        return overtaken

    def lowest(self) -> int | None:
        """Return the lowest offset of a mark, or None if there is no mark."""
        return min((mark.offset for mark in self), default=None)

    def report(self, earliest: int, visible: int) -> dict[str, Any]:
        """Return the figures of the marks, by name."""
        return {
            name: {
                "offset": mark.offset,
                "lag": mark.lag(earliest, visible),
                "excepted": len(mark.excepted),
                "overtaken": mark.overtaken,
            }
            for name, mark in sorted(self.by_name.items())
        }

    def records(self, topic: str) -> list[MarkedRecord]:
        """Return the records that keep the marks of a topic."""
        return [mark.record(topic) for mark in self]

    def restore(self, records: Iterable[MarkedRecord]) -> None:
        """Restore marks from their records."""
        for record in records:
            mark = Mark(record.name)
            mark.offset, mark.excepted, mark.checkpoint = record.offset, sorted(record.excepted), record.checkpoint
            mark.owners = tuple(record.owners)
            self.by_name[mark.name] = mark
            self._room.used += mark.size


def note_mark(kept: dict[str, MarkedRecord], record: MarkedRecord | UnmarkedRecord) -> None:
    """Apply the next record of a topic to its marks `kept`, by name, as the earlier records have left them."""
    if isinstance(record, UnmarkedRecord):
        kept.pop(record.name, None)
        return
    before = kept.get(record.name)
    if before is None:
        kept[record.name] = MarkedRecord(
            record.topic, record.name, record.offset, sorted(record.excepted), record.checkpoint, list(record.owners)
        )
        return
    before.offset = max(before.offset, record.offset)
    # A mark may have many exceptions, and many records without new ones.
    if record.excepted:
        before.excepted = sorted({*before.excepted, *record.excepted})
    before.checkpoint = record.checkpoint
    before.owners = list(record.owners)
