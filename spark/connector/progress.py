"""Decide how far a query reads, and how far its event time advances. No I/O.

These invariants hold:

* The watermark is part of the offset. Spark stores an offset before it runs the batch. So a batch that runs again after a
  crash has the same rows and the same watermark, and therefore the same late rows.
* Spark makes a window final in the batch *after* the one that moved the watermark. With `tells_early`, that next batch has
  rows, and they still count in the windows that it closes. For this, the last batch before the end of a window already moves
  the watermark, and the next batch waits until event time has reached the end. So a window's event is published one batch after
  the window's end. Without `tells_early`, Spark closes the window at once, by a batch without rows.
* The watermark never decreases, and it depends on no clock except the argument of `decide`. It moves by whole windows, since a
  time between the ends of two windows makes no window final.
* It follows the *last* event of a batch, not the highest time seen, so one event from the future cannot close all windows.
  An event time in the future counts as the broker's current time.
* A topic with unread events holds the watermark back. A topic that was read to its end does not, so an idle topic never
  stops the windows of a busy one. When all topics have been quiet for `idle_ms`, the clock moves the watermark instead, in
  steps of `tick_ms`, until no window can be open.
* Silence is measured by arrivals (the broker's clock), so that old changes that are published late do not count as silence. A
  window that was closed early waits until the events' times reach its end, or until the clock moves the watermark. If events
  arrive whose times do not advance, it waits at most as long as in silence.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

__all__ = ["Head", "ReadPosition", "TopicPosition", "WatermarkLimits", "decide", "is_short", "share_rows"]


class TopicPosition(Struct, frozen=True):
    """The position in one topic; `next` is the offset of the first unread event.

    `time_ms` is the event time and `arrived_ms` the broker's time of the event before it; both are 0 if there is none.
    """

    next: int
    time_ms: int = 0
    arrived_ms: int = 0


class ReadPosition(Struct, frozen=True):
    """A query's position in its topics.

    Windows that end at or before `watermark_ms` are final; those up to `closes_ms` become final in the next batch. With
    `is_early`, Spark received `closes_ms` before event time had reached it, and the next batch must wait until it has.
    """

    topics: dict[str, TopicPosition]
    watermark_ms: int = 0
    closes_ms: int = 0
    is_early: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark stores in its checkpoint."""
        return {
            "topics": {
                name: {"next": at.next, "time": at.time_ms, "arrived": at.arrived_ms}
                for name, at in sorted(self.topics.items())
            },
            "watermark": self.watermark_ms,
            "closes": self.closes_ms,
            "early": self.is_early,
        }

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> "ReadPosition":
        """Parse the form of `to_json`; in older checkpoints, `closes` and `early` are missing and no window is closing."""
        topics = {name: TopicPosition(at["next"], at["time"], at["arrived"]) for name, at in offset["topics"].items()}
        watermark = offset["watermark"]
        return cls(topics, watermark, offset.get("closes", watermark), offset.get("early", False))


class Head(Struct, frozen=True):
    """The offsets that a topic holds now: from `earliest` up to, not including, `next`."""

    earliest: int
    next: int


class WatermarkLimits(Struct, frozen=True):
    """The limits that decide when a batch is due. All are in milliseconds, except the last one.

    Args:
        delay_ms: an event is on time if it arrives at most this long after events with later times.
        idle_ms: the silence after which the clock moves the watermark.
        tick_ms: the windows' length.
        every_ms: the shortest time between two batches that close no window, 0 for none.
        tells_early: whether the last batch before a window's end moves the watermark, for a Spark that runs no empty batches.
    """

    delay_ms: int = 500
    idle_ms: int = 5000
    tick_ms: int = 10_000
    every_ms: int = 0
    tells_early: bool = False

    @property
    def early_ms(self) -> int:
        """How long before its end a window may be closed, because the next batch would run only after the end."""
        return self.every_ms + min(self.every_ms, self.tick_ms // 4)


def share_rows(unread: Mapping[str, int], rows_max: int | None) -> dict[str, int]:
    """Split a batch's `rows_max` over topics in proportion to their unread events, with at least 1 for each."""
    total = sum(unread.values())
    if rows_max is None or total <= rows_max:
        return dict(unread)
    return {topic: min(rows, max(1, rows * rows_max // total)) for topic, rows in unread.items()}


def decide(
    start: ReadPosition,
    reached: ReadPosition,
    heads: Mapping[str, Head],
    limits: WatermarkLimits,
    *,
    now_ms: int,
    last_batch_ms: int,
) -> ReadPosition:
    """Return the end of the next batch: `start` if no batch is due, else `reached`. The clock may move its watermark.

    Args:
        start: the end of the previous batch.
        reached: how far a batch may read, with the times of the last event of each topic.
        heads: the offsets that each topic holds.
        limits: when a batch is due.
        now_ms: the current time.
        last_batch_ms: the time of the last batch that read events.
    """
    come = _come_to(reached, heads, limits)
    if _is_live(reached, heads):
        come = max(come, _clock_time(reached, limits, now_ms))
    if _has_to_wait(start, come, reached, heads, limits):
        return start
    closes = max(start.closes_ms, come)
    is_pressing = closes > start.watermark_ms
    if not is_pressing and (reached.topics == start.topics or now_ms - last_batch_ms < limits.every_ms):
        return start
    if not limits.tells_early:
        return ReadPosition(reached.topics, closes, closes)
    # A window that is already complete must not wait for the next window's end.
    is_early = closes == start.closes_ms and _is_end_near(closes, reached, heads, limits)
    return ReadPosition(reached.topics, start.closes_ms, closes + limits.tick_ms if is_early else closes, is_early)


def is_short(start: ReadPosition, reached: ReadPosition, heads: Mapping[str, Head], limits: WatermarkLimits) -> bool:
    """Return whether a batch from `start` to `reached` would close windows and leave some of their events unread."""
    come = _come_to(reached, heads, limits)
    return not _is_live(reached, heads) and _has_to_wait(start, come, reached, heads, limits)


def _has_to_wait(
    start: ReadPosition, come: int, reached: ReadPosition, heads: Mapping[str, Head], limits: WatermarkLimits
) -> bool:
    return start.is_early and come < start.closes_ms and not _is_overdue(start, reached, heads, limits)


def _is_overdue(start: ReadPosition, reached: ReadPosition, heads: Mapping[str, Head], limits: WatermarkLimits) -> bool:
    """Return whether events have arrived for a long time without advancing event time, as when old changes are published."""
    waited_ms = _of_those_behind("arrived_ms", reached, heads) - _newest_ms(start)
    advanced_ms = _event_time(reached, heads) - max((at.time_ms for at in start.topics.values()), default=0)
    return advanced_ms <= 0 and waited_ms > limits.early_ms + limits.idle_ms


def _is_end_near(closes_ms: int, reached: ReadPosition, heads: Mapping[str, Head], limits: WatermarkLimits) -> bool:
    """Return whether the next batch would run at about the end of a window, and therefore should close it."""
    end_ms = closes_ms + limits.tick_ms + limits.delay_ms
    return _is_live(reached, heads) and end_ms - _event_time(reached, heads) < limits.early_ms


def _is_live(reached: ReadPosition, heads: Mapping[str, Head]) -> bool:
    return all(at.next >= heads[topic].next for topic, at in reached.topics.items())


def _come_to(reached: ReadPosition, heads: Mapping[str, Head], limits: WatermarkLimits) -> int:
    """Return the end of the last window that ended at least `delay_ms` before the event time of `reached`."""
    return _window_begin(_event_time(reached, heads) - limits.delay_ms, limits)


def _event_time(reached: ReadPosition, heads: Mapping[str, Head]) -> int:
    return _of_those_behind("time_ms", reached, heads)


def _of_those_behind(name: Literal["time_ms", "arrived_ms"], reached: ReadPosition, heads: Mapping[str, Head]) -> int:
    """Return the smallest value of the topics that have unread events; if no topic has any, the largest of all values."""
    behind = [getattr(at, name) for topic, at in reached.topics.items() if at.next < heads[topic].next]
    return min(behind) if behind else max((getattr(at, name) for at in reached.topics.values()), default=0)


def _clock_time(reached: ReadPosition, limits: WatermarkLimits, now_ms: int) -> int:
    newest = _newest_ms(reached)
    quiet_until = now_ms - limits.idle_ms
    if not newest or quiet_until < newest:
        return 0
    # Event times are never later than arrival times, so after this time no window is open and a batch has nothing to do.
    everything_closed = (newest // limits.tick_ms + 1) * limits.tick_ms
    return _window_begin(min(quiet_until - limits.delay_ms, everything_closed), limits)


def _newest_ms(position: ReadPosition) -> int:
    return max((at.arrived_ms for at in position.topics.values()), default=0)


def _window_begin(time_ms: int, limits: WatermarkLimits) -> int:
    return time_ms // limits.tick_ms * limits.tick_ms
