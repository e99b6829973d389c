"""The record of the events of a topic that wait for their due times.

It is part of a snapshot only. A start finds younger events in the log, where it also looks for producers.
"""

import sys
from array import array
from collections.abc import Iterator

from msgspec import Struct

__all__ = ["ScheduleRecord"]


class ScheduleRecord(Struct, tag="schedule"):
    """The scheduled events of a topic when the snapshot was made.

    - `offsets` and `dues`: eight bytes for each event, the lowest byte first, in the order of offsets. `dues` are in
      milliseconds since 1970 UTC.
    - `priorities`: one byte for each event.
    - `expiring`: the first and the last offset between which events may have an expiry, None if there are none.
    """

    topic: str
    offsets: bytes
    dues: bytes
    priorities: bytes
    expiring: tuple[int, int] | None = None

    def events(self) -> Iterator[tuple[int, int, int]]:
        """Yield the (offset, due, priority) of each event, by offset. Raises ValueError if the record is damaged."""
        return zip(_numbers(self.offsets), _numbers(self.dues), self.priorities, strict=True)


def _numbers(raw: bytes) -> "array[int]":
    numbers = array("Q", raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
