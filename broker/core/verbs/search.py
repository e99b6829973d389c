"""Find events by their ids, for every command that takes a reference. A thread searches a limited number of events."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from broker.core.steps import Interrupt
from broker.core.topic.topic import Topic
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.event_lines import line_id

__all__ = ["SEARCHED_MAX", "Search", "find_ids"]

SEARCHED_MAX: Final = 1_000_000
"""How many of a topic's newest events are searched for an id."""
_FIRST_READ: Final = 1000
_READ_MAX: Final = 16_000
_READ_BYTES: Final = 8 << 20
_PICKED: Final = 1000


class Search:
    """A search for the event with an id: the first one among the offsets `first`, else the newest one of the topic."""

    def __init__(self, topic: Topic, wanted: str, first: Sequence[int] = ()) -> None:
        self._topic = topic
        self._end = topic.visible
        self._wanted = wanted
        self._first = first

    def run(self, interrupt: Interrupt) -> int:
        """Return the event's offset. Reads files, so call it in a thread. Raises Refusal ``no_event``."""
        for offset, id_ in find_ids(self._topic, self._first, {self._wanted}, interrupt):
            if id_ == self._wanted:
                return offset
        end, count = self._end, _FIRST_READ
        lowest = max(self._topic.log.earliest, end - SEARCHED_MAX)
        while end > lowest:
            interrupt.check()
            first = max(lowest, end - count)
            found = self._newest_within(first, end)
            if found is not None:
                return found
            end, count = first, min(2 * count, _READ_MAX)
        name = self._topic.name
        if lowest == self._topic.log.earliest:
            raise Refusal("no_event", f"no event of {name} has the id {self._wanted}")
        raise Refusal(
            "no_event",
            f"none of the newest {SEARCHED_MAX:,} events of {name} has the id {self._wanted};"
            " name an older one by its offset: @<offset>",
        )

    def _newest_within(self, first: int, end: int) -> int | None:
        """Return the highest of the offsets first … end - 1 whose event has the id."""
        encoded, newest = _encoded_id(self._wanted), None
        while first < end:
            lines, after, _ = self._topic.log.read(first, end - first, _READ_BYTES)
            for line in lines:
                if encoded in line and line_id(line) == self._wanted:
                    newest = line_offset(line)
            if after <= first:
                break
            first = after
        return newest


def find_ids(
    topic: Topic, offsets: Iterable[int], wanted: set[str] | None, interrupt: Interrupt
) -> Iterator[tuple[int, str]]:
    """Yield (offset, id) of the events at `offsets`, in this order; if `wanted` is given, only of events with these ids."""
    left = list(offsets)
    for at in range(0, len(left), _PICKED):
        interrupt.check()
        some = left[at : at + _PICKED]
        lines = topic.log.pick(sorted(offset for offset in some if offset >= topic.log.earliest))
        for offset in some:
            id_ = line_id(lines[offset]) if offset in lines else None
            if id_ is not None and (wanted is None or id_ in wanted):
                yield offset, id_


def line_offset(line: bytes) -> int:
    """Return the offset in a stored line."""
    return _decode_offset(line).offset


class _Place(msgspec.Struct, gc=False):
    offset: int


_decode_offset = msgspec.json.Decoder(_Place).decode


def _encoded_id(wanted: str) -> bytes:
    return b'"id":%b' % msgspec.json.encode(wanted)
