"""Reading the statistics topics: windows as the dictionaries that their events carry."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from spark.link import Link

__all__ = ["Tail", "Window", "start_of", "windows_since"]

Window = dict[str, Any]


class _Line(Struct):
    msg: Window


_decode = msgspec.json.Decoder(_Line).decode


def start_of(window: Window) -> datetime:
    """Give the beginning of a window."""
    return datetime.fromisoformat(window["window"]["start"])


def windows_since(link: Link, topic: str, since: datetime) -> list[Window]:
    """Give the windows of a topic that begin at or after `since`, in their order; none where there is no such topic.

    A window is published after its end, so the broker's times find the first of them.
    """
    first, head = link.offset_at(topic, since), link.heads([topic])[topic].next
    found = [_decode(line).msg for lines in link.chunks(topic, first, head) for line in lines]
    return sorted((window for window in found if start_of(window) >= since), key=start_of)


class Tail:
    """Follows a topic from its last `most` windows on."""

    def __init__(self, topic: str, most: int) -> None:
        self.topic = topic
        self._most = most
        self._next: int | None = None

    def fresh(self, link: Link) -> list[Window]:
        """Give the windows that came since the last call."""
        head = link.heads([self.topic])[self.topic]
        if self._next is None or not head.earliest <= self._next <= head.next:
            self._next = max(head.earliest, head.next - self._most)
        lines = [line for chunk in link.chunks(self.topic, self._next, head.next) for line in chunk]
        self._next = head.next
        return [_decode(line).msg for line in lines]
