"""Read the statistics topics."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from spark.connector.link import SparkLink
from tweetwire.statistics import Window, read_window

__all__ = ["WindowTail", "windows_since"]

W = TypeVar("W", bound=Window)


def windows_since(link: SparkLink, topic: str, kind: type[W], since: datetime) -> list[W]:
    """Return the windows of a topic that begin at or after `since`, in order; none if the topic does not exist.

    A window is published after its end, so the events that the broker stored before `since` are not read.
    """
    first, head = link.offset_at(topic, since), link.heads([topic])[topic].next
    found = [window for lines in link.chunks(topic, first, head) for window in _windows_of(lines, kind)]
    return sorted((one for one in found if one.window.start_at >= since), key=lambda one: one.window.start_at)


class WindowTail(Generic[W]):
    """Follows a topic, beginning with its last `most` windows."""

    def __init__(self, topic: str, kind: type[W], most: int) -> None:
        self.topic = topic
        self._kind: type[W] = kind
        self._most = most
        self._next: int | None = None

    def fresh(self, link: SparkLink) -> list[W]:
        """Return the windows published since the last call."""
        head = link.heads([self.topic])[self.topic]
        if self._next is None or not head.earliest <= self._next <= head.next:
            self._next = max(head.earliest, head.next - self._most)
        lines = chain.from_iterable(link.chunks(self.topic, self._next, head.next))
        found = list(_windows_of(lines, self._kind))
        self._next = head.next
        return found


class _Line(Struct):
    msg: Raw


_decode = msgspec.json.Decoder(_Line).decode


def _windows_of(lines: Iterable[bytes], kind: type[W]) -> Iterator[W]:
    """Yield the windows among a topic's events; other events in the topic are skipped."""
    for line in lines:
        window = read_window(_decode(line).msg, kind)
        if window is not None:
            yield window
