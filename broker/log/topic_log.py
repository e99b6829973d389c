"""The interface of a topic's log, on the disk or in memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from broker.log.batch import Batch
from broker.log.damage import Damage
from broker.log.retention import Span
from broker.log.stretch import Stretch

__all__ = ["TopicLog"]


class TopicLog(Protocol):
    """A log whose offsets `earliest` … `next` - 1 can be read. One thread appends at a time; any thread may read.

    Events below `hidden_below` may still be stored, but no method returns them. `id` distinguishes the log from earlier logs of
    its topic; it is "" where the disk had no room for it.
    """

    hidden_below: int
    id: str

    @property
    def earliest(self) -> int:
        """The lowest offset that can be read, or `next` if the log is empty."""
        ...

    @property
    def next(self) -> int:
        """The offset after the last written event."""
        ...

    @property
    def size(self) -> int:
        """The size of all event lines in bytes."""
        ...

    @property
    def last_timestamp(self) -> int:
        """The newest event's timestamp (ms), 0 if the log is empty."""
        ...

    @property
    def last_arrived(self) -> int:
        """The time (ms) by the broker's clock at which the newest event arrived, 0 if the log is empty."""
        ...

    def append(self, batch: Batch) -> None:
        """Write a batch with the durability that the log promises. Raises OSError, and then the log holds none of it."""
        ...

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Read up to `count` lines of about `bytes_max` bytes from the first existing offset ≥ `first`.

        Returns the intact lines, the offset after the last line read, and the damaged lines.
        """
        ...

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Return the lines at `offsets`, which must be in order. Damaged and missing lines are left out."""
        ...

    def stretches(self, first: int) -> list[Stretch]:
        """Return the priorities of the events from offset `first` to the end, in order."""
        ...

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`, 0 if it is missing."""
        ...

    def offset_at(self, time_ms: int, now_ms: int | None = None) -> int:
        """Return the first offset stored at or after `time_ms`, `next` if there is none. `now_ms` is the current time."""
        ...

    def spans(self) -> list[Span]:
        """Return the parts that `forget_below` could remove, in order."""
        ...

    def hide_below(self, offset: int) -> None:
        """Hide the events below `offset` from all readers. They stay stored until `forget_below`."""
        ...

    def end_hidden(self) -> None:
        """Close the last part if all its events are hidden, so that it can be removed. Raises OSError."""
        ...

    def end_older(self, time_ms: int) -> None:
        """Close the last part if all its events arrived before `time_ms`, so that it can be removed. Raises OSError."""
        ...

    def forget_below(self, offset: int) -> None:
        """Remove each closed part whose events are all below `offset`. Raises OSError."""
        ...

    def skip_to(self, offset: int) -> None:
        """Continue at `offset`, since the offsets before it were already used. It must be at least `next`. Raises OSError."""
        ...

    def set_aside(self, directory: Path) -> None:
        """Rename the log's folder to `directory`, durably. Nothing is written after that. Raises OSError if the folder stays.

        Call it while nothing is appended. Readers find the files at their new place, or none if they are deleted.
        """
        ...

    def close(self) -> None:
        """Close the files, if there are any."""
        ...
