"""How far a query has read, and how far its event time has come: the decisions of the source, without I/O.

What is always true:
* The watermark is part of the offset. Spark writes an offset down before it runs the batch, so a batch that runs again
  after a crash sees the same rows, the same watermark and therefore the same late rows.
* The watermark never falls, and no clock but the one in `decide` moves it. It moves from window to window: what lies
  between makes no window final, and Spark answers each of its moves with a batch of its own.
* It is taken from the *last* event of a batch, not from the highest time seen: one event from the future cannot close
  everybody's windows, and times after the broker's own clock count as that clock's.
* A topic with unread events holds the watermark back; one that has been read to its end does not, so an idle topic
  never stops the windows of a busy one. When all have been quiet for `idle_ms` the clock stands in for the events
  that do not come, in steps of `tick_ms`, until nothing can be open any more.
* Silence is measured by arrivals (the broker's clock), since old changes that are published late are no silence.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

__all__ = ["Head", "Limits", "Position", "TopicPosition", "decide", "share_rows"]


class TopicPosition(Struct, frozen=True):
    """`next` is the offset of the first event not read.

    Of the event before it, `time_ms` is the event time and `arrived_ms` the broker's time; both 0 where there is none.
    """

    next: int
    time_ms: int = 0
    arrived_ms: int = 0


class Position(Struct, frozen=True):
    """A query's place in its topics. Windows that end at or before `watermark_ms` are final."""

    topics: dict[str, TopicPosition]
    watermark_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Give the form that Spark keeps in its checkpoint."""
        return {
            "topics": {
                name: {"next": at.next, "time": at.time_ms, "arrived": at.arrived_ms}
                for name, at in sorted(self.topics.items())
            },
            "watermark": self.watermark_ms,
        }

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> "Position":
        """Read the form of `to_json`."""
        topics = {name: TopicPosition(at["next"], at["time"], at["arrived"]) for name, at in offset["topics"].items()}
        return cls(topics, offset["watermark"])


class Head(Struct, frozen=True):
    """What a topic offers now: its offsets from `earliest` up to, not including, `next`."""

    earliest: int
    next: int


class Limits(Struct, frozen=True):
    """When a batch is due. All in milliseconds.

    `delay_ms` is how much later than its successors an event may come and still be on time, `idle_ms` the silence after
    which the clock stands in, `tick_ms` the windows' length, `every_ms` the least time between two batches that close
    no window, 0 for none.
    """

    delay_ms: int = 500
    idle_ms: int = 5000
    tick_ms: int = 10_000
    every_ms: int = 0


def share_rows(unread: Mapping[str, int], rows_max: int | None) -> dict[str, int]:
    """Split a batch's `rows_max` over topics in the proportion of what is unread in each, at least 1 to each."""
    total = sum(unread.values())
    if rows_max is None or total <= rows_max:
        return dict(unread)
    return {topic: min(rows, max(1, rows * rows_max // total)) for topic, rows in unread.items()}


def decide(
    start: Position, reached: Position, heads: Mapping[str, Head], limits: Limits, *, now_ms: int, last_batch_ms: int
) -> Position:
    """Decide where the next batch ends: at `start` (no batch yet), at `reached`, or at `reached` with the clock's tick.

    `reached` is how far a batch may read, with the time of the last event of each topic.
    """
    watermark = max(start.watermark_ms, _window_begin(_event_time(reached, heads) - limits.delay_ms, limits))
    if reached.topics == start.topics:
        watermark = max(watermark, _clock_time(reached, limits, now_ms))
        return Position(start.topics, watermark) if watermark > start.watermark_ms else start
    closes_window = watermark > start.watermark_ms
    if closes_window or now_ms - last_batch_ms >= _pause(start, reached, heads, limits):
        return Position(reached.topics, watermark)
    return start


def _pause(start: Position, reached: Position, heads: Mapping[str, Head], limits: Limits) -> int:
    """Give the least time between two batches: twice as long where one would be in the way of a window that is about to end."""
    ends_in = start.watermark_ms + limits.tick_ms + limits.delay_ms - _event_time(reached, heads)
    is_live = all(at.next == heads[topic].next for topic, at in reached.topics.items())
    return limits.every_ms * (2 if is_live and ends_in < limits.every_ms < limits.tick_ms else 1)


def _event_time(reached: Position, heads: Mapping[str, Head]) -> int:
    behind = [at.time_ms for topic, at in reached.topics.items() if at.next < heads[topic].next]
    return min(behind) if behind else max((at.time_ms for at in reached.topics.values()), default=0)


def _clock_time(reached: Position, limits: Limits, now_ms: int) -> int:
    newest = max((at.arrived_ms for at in reached.topics.values()), default=0)
    quiet_until = now_ms - limits.idle_ms
    if not newest or quiet_until < newest:
        return 0
    # Event times are at most arrival times, so behind this nothing is open and a batch would have nothing to do.
    everything_closed = (newest // limits.tick_ms + 1) * limits.tick_ms
    return _window_begin(min(quiet_until - limits.delay_ms, everything_closed), limits)


def _window_begin(time_ms: int, limits: Limits) -> int:
    return time_ms // limits.tick_ms * limits.tick_ms
