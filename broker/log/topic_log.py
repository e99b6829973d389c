"""What a topic needs of its log, on the disk or in memory."""

from collections.abc import Sequence
from typing import Protocol

from broker.log.damage import Damage
from broker.log.retention import Span
from broker.log.segment import Batch
from broker.log.stretch import Stretch

__all__ = ["TopicLog"]


class TopicLog(Protocol):
    """Offsets `earliest` … `next` - 1 can be read. One thread appends at a time; any may read."""

    @property
    def earliest(self) -> int:
        """The lowest offset that is still there (or `next` where there is none)."""
        ...

    @property
    def next(self) -> int:
        """The offset behind the last written event."""
        ...

    @property
    def size(self) -> int:
        """Bytes of all event lines."""
        ...

    @property
    def last_timestamp(self) -> int:
        """When the newest event was stored (ms), 0 where there is none."""
        ...

    def append(self, batch: Batch) -> None:
        """Write a batch and keep the log's promise about it. Raises OSError, and then nothing of it is in the log."""
        ...

    def read(self, first: int, count: int, bytes_max: int) -> tuple[list[bytes], int, list[Damage]]:
        """Read up to `count` lines of about `bytes_max` bytes from the first existing offset ≥ `first`.

        Returns the lines, the offset behind the last one looked at, and the damaged ones, which are not in the lines.
        """
        ...

    def pick(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """Read single lines, `offsets` being in order; damaged ones and those not there are missing in the result."""
        ...

    def stretches(self, first: int) -> list[Stretch]:
        """Return the priorities of the events from offset `first` to the end, in order."""
        ...

    def priority_of(self, offset: int) -> int:
        """Return the priority of the event at `offset`, 0 where it is not there."""
        ...

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset stored at or after `time_ms`, `next` where there is none."""
        ...

    def spans(self) -> list[Span]:
        """Return the parts that `forget_below` could remove, in order."""
        ...

    def end_older(self, time_ms: int) -> None:
        """Close the last part if all its events were stored before `time_ms`, so that it can go. Raises OSError."""
        ...

    def forget_below(self, offset: int) -> None:
        """Remove the parts that lie below `offset` as a whole. Raises OSError."""
        ...

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`, which must not be lower than `next`, since those between were given before. Raises OSError."""
        ...

    def close(self) -> None:
        """Close the files, if there are any."""
        ...
