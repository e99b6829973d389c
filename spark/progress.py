"""How far a query has read, and how far its event time has come: the decisions of the source, without I/O.

What is always true:
* The watermark is part of the offset. Spark writes an offset down before it runs the batch, so a batch that runs again
  after a crash sees the same rows, the same watermark and therefore the same late rows.
* Spark makes a window final in the batch *after* the one that told it to. With `tells_early` that batch is one of ours,
  and what it reads is still counted in the windows that it closes. Where the end of a window is near, the batch before
  it tells Spark already, and the next one waits until event time has come that far: one batch from the window's end to
  its event. Without, Spark closes the window at once, by a batch without rows.
* The watermark never falls, and no clock but the one in `decide` moves it. It moves from window to window, since what
  lies between makes no window final.
* It is taken from the *last* event of a batch, not from the highest time seen: one event from the future cannot close
  everybody's windows, and times after the broker's own clock count as that clock's.
* A topic with unread events holds the watermark back; one that has been read to its end does not, so an idle topic
  never stops the windows of a busy one. When all have been quiet for `idle_ms` the clock stands in for the events
  that do not come, in steps of `tick_ms`, until nothing can be open any more.
* Silence is measured by arrivals (the broker's clock), since old changes that are published late are no silence. A window
  whose end was told early waits for the events' times, the clock in silence, or, where events arrive whose times do not
  advance, as long as that.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

__all__ = ["Head", "Limits", "Position", "TopicPosition", "decide", "is_short", "share_rows"]


class TopicPosition(Struct, frozen=True):
    """`next` is the offset of the first event not read.

    Of the event before it, `time_ms` is the event time and `arrived_ms` the broker's time; both 0 where there is none.
    """

    next: int
    time_ms: int = 0
    arrived_ms: int = 0


class Position(Struct, frozen=True):
    """A query's place in its topics.

    Windows that end at or before `watermark_ms` are final; those up to `closes_ms` become so by the next batch. With
    `is_early` that has been told to Spark before event time has come so far, and the next batch has to wait for it.
    """

    topics: dict[str, TopicPosition]
    watermark_ms: int = 0
    closes_ms: int = 0
    is_early: bool = False

    def to_json(self) -> dict[str, Any]:
        """Give the form that Spark keeps in its checkpoint."""
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
    def from_json(cls, offset: Mapping[str, Any]) -> "Position":
        """Read the form of `to_json`; in older checkpoints nothing is left to close."""
        topics = {name: TopicPosition(at["next"], at["time"], at["arrived"]) for name, at in offset["topics"].items()}
        watermark = offset["watermark"]
        return cls(topics, watermark, offset.get("closes", watermark), offset.get("early", False))


class Head(Struct, frozen=True):
    """What a topic offers now: its offsets from `earliest` up to, not including, `next`."""

    earliest: int
    next: int


class Limits(Struct, frozen=True):
    """When a batch is due. All in milliseconds, save the last.

    `delay_ms` is how much later than its successors an event may come and still be on time, `idle_ms` the silence after
    which the clock stands in, `tick_ms` the windows' length, `every_ms` the least time between two batches that close
    no window, 0 for none. `tells_early` is for queries whose Spark runs no batches without rows.
    """

    delay_ms: int = 500
    idle_ms: int = 5000
    tick_ms: int = 10_000
    every_ms: int = 0
    tells_early: bool = False

    @property
    def early_ms(self) -> int:
        """How long before its end a window may be told to Spark: the batch that would come after that, or a bit later."""
        return self.every_ms + min(self.every_ms, self.tick_ms // 4)


def share_rows(unread: Mapping[str, int], rows_max: int | None) -> dict[str, int]:
    """Split a batch's `rows_max` over topics in the proportion of what is unread in each, at least 1 to each."""
    total = sum(unread.values())
    if rows_max is None or total <= rows_max:
        return dict(unread)
    return {topic: min(rows, max(1, rows * rows_max // total)) for topic, rows in unread.items()}


def decide(
    start: Position, reached: Position, heads: Mapping[str, Head], limits: Limits, *, now_ms: int, last_batch_ms: int
) -> Position:
    """Decide where the next batch ends: at `start` (no batch yet), or at `reached`, maybe by the clock's tick.

    `reached` is how far a batch may read, with the time of the last event of each topic.
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
        return Position(reached.topics, closes, closes)
    # A window that is complete already must not wait for the next one's end.
    is_early = closes == start.closes_ms and _is_end_near(closes, reached, heads, limits)
    return Position(reached.topics, start.closes_ms, closes + limits.tick_ms if is_early else closes, is_early)


def is_short(start: Position, reached: Position, heads: Mapping[str, Head], limits: Limits) -> bool:
    """Say whether `reached` leaves events unread that belong into the windows which the batch from `start` closes."""
    come = _come_to(reached, heads, limits)
    return not _is_live(reached, heads) and _has_to_wait(start, come, reached, heads, limits)


def _has_to_wait(start: Position, come: int, reached: Position, heads: Mapping[str, Head], limits: Limits) -> bool:
    return start.is_early and come < start.closes_ms and not _is_overdue(start, reached, heads, limits)


def _is_overdue(start: Position, reached: Position, heads: Mapping[str, Head], limits: Limits) -> bool:
    """Say whether events have come for long whose times do not advance, as when old changes are published."""
    waited_ms = _of_those_behind("arrived_ms", reached, heads) - _newest_ms(start)
    advanced_ms = _event_time(reached, heads) - max((at.time_ms for at in start.topics.values()), default=0)
    return advanced_ms <= 0 and waited_ms > limits.early_ms + limits.idle_ms


def _is_end_near(closes_ms: int, reached: Position, heads: Mapping[str, Head], limits: Limits) -> bool:
    """Say whether the next batch would come just before or after the end of a window, and so is to be the one to close it."""
    end_ms = closes_ms + limits.tick_ms + limits.delay_ms
    return _is_live(reached, heads) and end_ms - _event_time(reached, heads) < limits.early_ms


def _is_live(reached: Position, heads: Mapping[str, Head]) -> bool:
    return all(at.next >= heads[topic].next for topic, at in reached.topics.items())


def _come_to(reached: Position, heads: Mapping[str, Head], limits: Limits) -> int:
    """Give the end of the last window that lies behind the events of `reached` by the delay."""
    return _window_begin(_event_time(reached, heads) - limits.delay_ms, limits)


def _event_time(reached: Position, heads: Mapping[str, Head]) -> int:
    return _of_those_behind("time_ms", reached, heads)


def _of_those_behind(name: Literal["time_ms", "arrived_ms"], reached: Position, heads: Mapping[str, Head]) -> int:
    """Give the least of the topics that have unread events, or, where all are read, the greatest."""
    behind = [getattr(at, name) for topic, at in reached.topics.items() if at.next < heads[topic].next]
    return min(behind) if behind else max((getattr(at, name) for at in reached.topics.values()), default=0)


def _clock_time(reached: Position, limits: Limits, now_ms: int) -> int:
    newest = _newest_ms(reached)
    quiet_until = now_ms - limits.idle_ms
    if not newest or quiet_until < newest:
        return 0
    # Event times are at most arrival times, so behind this nothing is open and a batch would have nothing to do.
    everything_closed = (newest // limits.tick_ms + 1) * limits.tick_ms
    return _window_begin(min(quiet_until - limits.delay_ms, everything_closed), limits)


def _newest_ms(position: Position) -> int:
    return max((at.arrived_ms for at in position.topics.values()), default=0)


def _window_begin(time_ms: int, limits: Limits) -> int:
    return time_ms // limits.tick_ms * limits.tick_ms
