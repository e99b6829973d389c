"""Read a topic's log in pages, forwards and backwards, without a subscription.

Memory is bounded by a page, whatever the size of the topic. While the pages are read, retention or a purge may remove events,
which are then missing from the pages.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from tweetwire.protocol.errors import Refusal

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient

__all__ = ["PAGE", "last_lines", "line_offset", "log_end", "log_pages", "offset_of"]

PAGE: Final = 10_000


class _Placed(Struct):
    offset: int


_decode = msgspec.json.Decoder(_Placed).decode


def line_offset(line: bytes) -> int:
    """Return the offset of a stored event."""
    return _decode(line).offset


def log_end(client: "SyncClient", topic: str) -> int:
    """Return the offset of the topic's next event. Raises Refusal if the topic does not exist."""
    return client.read_lines(topic, "latest", limit=1)[1]


def offset_of(client: "SyncClient", topic: str, place: int | str) -> int:
    """Return the offset of the first event at a place or after it: an offset, ``earliest``, ``latest`` or a time.

    Raises Refusal.
    """
    lines, after = client.read_lines(topic, place, limit=1, bytes_max=1)
    return line_offset(lines[0]) if lines else after


def log_pages(client: "SyncClient", topic: str, start: int, end: int) -> Iterator[list[bytes]]:
    """Yield the events of the offsets `start` to `end` - 1 in pages. `end` must not be beyond the end of the log.

    Raises Refusal. Its code is ``unknown_topic`` also if the topic was dropped and created again.
    """
    at = start
    while at < end:
        lines, after = client.read_lines(topic, at, limit=min(PAGE, end - at))
        if after <= at:
            raise Refusal("unknown_topic", f"{topic} was dropped and made again while it was read")
        # Offsets may be missing, so a page of the right length can reach too far.
        while lines and line_offset(lines[-1]) >= end:
            lines.pop()
        if lines:
            yield lines
        at = after


def last_lines(
    client: "SyncClient", topic: str, span: range, count: int, matches: Callable[[bytes], bool]
) -> list[bytes]:
    """Return the last `count` events of the offsets in `span` that match, in order.

    The log is read backwards, in steps that grow. So the last events of a large topic are found quickly. Raises Refusal.
    """
    found: deque[bytes] = deque()
    end, step = span.stop, min(count, PAGE)
    while len(found) < count and end > span.start:
        begin = max(span.start, end - step)
        lines = (line for page in log_pages(client, topic, begin, end) for line in page if matches(line))
        found.extendleft(reversed(deque(lines, count - len(found))))
        end, step = begin, min(2 * step, PAGE)
    return list(found)
