"""Keep the lines of refused publishes in the topic `REJECTED_LINES`, within a limit."""

from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw, Struct

from broker.core.topics import Topics
from broker.core.work import Work
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent

__all__ = ["REJECTED_LINES", "RejectedLines"]

REJECTED_LINES: Final = "rejected_lines"
PER_SECOND: Final = 100
BYTES_MAX: Final = 4096


class _Rejected(Struct):
    line: str
    code: str
    text: str
    client: str


class RejectedLines:
    """Keeps up to `PER_SECOND` refused lines a second, and counts all."""

    def __init__(self, topics: Topics, work: Work, counts: dict[str, int]) -> None:
        self.is_closed = False
        self._topics = topics
        self._work = work
        self._counts = counts
        self._second, self._kept = 0, 0

    def keep(self, client: str, refusal: Refusal, now_ms: int) -> None:
        """Store a refused line of a client, unless there were too many in this second or the broker is draining."""
        self._counts["rejected_lines"] += 1
        if self._second != now_ms // 1000:
            self._second, self._kept = now_ms // 1000, 0
        self._kept += 1
        if self._kept > PER_SECOND or self.is_closed:
            return
        with suppress(Refusal):
            topic = self._topics.make(REJECTED_LINES)
            event = _rejected_event(refusal, client, self._counts["rejected_lines"])
            for _ in topic.accept([event], now_ms):
                self._work.topics.add(topic)


def _rejected_event(refusal: Refusal, client: str, number: int) -> IncomingEvent:
    """Return the event that keeps the first `BYTES_MAX` bytes of a refused line."""
    text = refusal.line[:BYTES_MAX].decode("utf-8", "replace")
    return IncomingEvent(
        id=f"rejected-{number}", msg=Raw(msgspec.json.encode(_Rejected(text, refusal.code, refusal.text, client)))
    )
