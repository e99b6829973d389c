"""The source's decisions: where a batch ends, and how far event time has come."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark.connector.progress import Head, ReadPosition, TopicPosition, WatermarkLimits, decide, is_short, share_rows

LIMITS = WatermarkLimits(delay_ms=500, idle_ms=5_000, tick_ms=10_000, every_ms=2_000, tells_early=True)
START = 1_700_000_000_000


def position(
    next_: int,
    time_ms: int,
    watermark_ms: int = 0,
    closes_ms: int | None = None,
    *,
    is_early: bool = False,
    arrived_ms: int | None = None,
) -> ReadPosition:
    at = TopicPosition(next_, time_ms, time_ms if arrived_ms is None else arrived_ms)
    return ReadPosition({"tweets": at}, watermark_ms, watermark_ms if closes_ms is None else closes_ms, is_early)


def heads(next_: int) -> dict[str, Head]:
    return {"tweets": Head(0, next_)}


def decided(
    start: ReadPosition, reached: ReadPosition, head: int, *, now_ms: int, last_batch_ms: int = 0
) -> ReadPosition:
    return decide(start, reached, heads(head), LIMITS, now_ms=now_ms, last_batch_ms=last_batch_ms)


def test_a_position_is_the_same_after_its_way_through_the_checkpoint() -> None:
    there = ReadPosition({"b": TopicPosition(3, 4, 5), "a": TopicPosition(1, 2, 3)}, 99, 109, is_early=True)
    assert ReadPosition.from_json(there.to_json()) == there


def test_an_older_checkpoint_without_early_ends_has_no_window_to_close() -> None:
    old = {"topics": {"tweets": {"next": 10, "time": START, "arrived": START}}, "watermark": START - 10_000}
    assert ReadPosition.from_json(old) == position(10, START, START - 10_000)


def test_windows_close_if_they_end_at_least_the_delay_before_the_last_event() -> None:
    start = position(0, 0)
    assert decided(start, position(10, START + 499), 11, now_ms=START + 505).closes_ms == START - 10_000
    assert decided(start, position(10, START + 500), 11, now_ms=START + 505) == position(10, START + 500, 0, START)


def test_a_window_that_a_batch_closes_is_final_after_it_and_needs_no_more_events() -> None:
    start = position(10, START + 3_000, START - 10_000, START)
    assert decided(start, start, 10, now_ms=START + 3_001, last_batch_ms=START + 3_000) == position(
        10, START + 3_000, START
    )


def test_events_that_close_no_window_wait_until_a_batch_is_due_and_leave_the_watermark() -> None:
    start = position(10, START + 1_000, START)
    reached = position(20, START + 2_000)
    assert decided(start, reached, 20, now_ms=START + 2_001, last_batch_ms=START + 1_000) == start
    end = decided(start, reached, 20, now_ms=START + 3_001, last_batch_ms=START + 1_000)
    assert end == position(20, START + 2_000, START)


def test_an_event_that_closes_a_window_is_not_kept_waiting() -> None:
    start = position(10, START + 9_000, START)
    end = decided(start, position(11, START + 10_600), 11, now_ms=START + 10_601, last_batch_ms=START + 10_000)
    assert end == position(11, START + 10_600, START, START + 10_000)


def test_the_batch_before_a_windows_end_announces_it_and_the_next_waits_for_it() -> None:
    start = position(10, START + 5_000, START)
    near = decided(start, position(20, START + 7_000), 20, now_ms=START + 7_000, last_batch_ms=START + 5_000)
    assert near == position(20, START + 7_000, START, START + 10_000, is_early=True)
    before = decided(near, position(30, START + 10_499), 30, now_ms=START + 10_499, last_batch_ms=START + 7_000)
    assert before == near
    closing = decided(near, position(31, START + 10_500), 31, now_ms=START + 10_500, last_batch_ms=START + 7_000)
    assert closing == position(31, START + 10_500, START + 10_000)


def test_with_more_to_read_no_end_is_announced_early_since_event_time_is_not_clock_time() -> None:
    start = position(10, START + 5_000, START)
    end = decided(start, position(20, START + 7_000), 21, now_ms=START + 7_000, last_batch_ms=START + 5_000)
    assert end == position(20, START + 7_000, START)


def test_where_batches_are_rarer_than_windows_each_announces_the_next_end() -> None:
    often = WatermarkLimits(delay_ms=500, tick_ms=1_000, every_ms=2_000, tells_early=True)
    start = position(10, START + 600, START - 1_000, START, is_early=True)
    end = decide(start, position(20, START + 600), heads(20), often, now_ms=START + 600, last_batch_ms=START)
    assert end == position(20, START + 600, START, START + 1_000, is_early=True)


def test_a_window_that_is_complete_does_not_wait_for_the_next_ones_end() -> None:
    start = position(10, START + 5_000, START)
    end = decided(start, position(20, START + 17_000), 20, now_ms=START + 17_000)
    assert end == position(20, START + 17_000, START, START + 10_000)
    after = decided(end, end, 20, now_ms=START + 17_001, last_batch_ms=START + 17_000)
    assert after == position(20, START + 17_000, START + 10_000, START + 20_000, is_early=True)


def test_where_spark_has_batches_without_rows_a_window_is_final_at_once_and_never_announced_early() -> None:
    limits = replace(LIMITS, tells_early=False)
    start = position(10, START + 5_000, START)
    near = decide(start, position(20, START + 9_000), heads(20), limits, now_ms=START + 9_000, last_batch_ms=0)
    assert near == position(20, START + 9_000, START)
    end = decide(near, position(30, START + 10_500), heads(30), limits, now_ms=START + 10_500, last_batch_ms=0)
    assert end == position(30, START + 10_500, START + 10_000)


def test_a_batch_is_short_until_it_holds_all_events_of_the_window_that_it_closes() -> None:
    early = position(10, START + 7_000, START, START + 10_000, is_early=True)
    assert is_short(early, position(20, START + 10_499), heads(30), LIMITS)
    assert not is_short(early, position(21, START + 10_500), heads(30), LIMITS)
    assert not is_short(early, position(30, START + 9_000), heads(30), LIMITS)
    assert not is_short(position(10, START + 7_000, START), position(20, START + 8_000), heads(30), LIMITS)


def test_an_old_event_never_lowers_the_watermark() -> None:
    start = position(10, START, START)
    end = decided(start, position(11, START - 60_000), 11, now_ms=START + 9_000)
    assert end.watermark_ms == end.closes_ms == START


def test_in_silence_the_clock_closes_the_last_window_and_then_stops() -> None:
    start = position(10, START + 3_000, START)
    assert decided(start, start, 10, now_ms=START + 7_999) == start
    assert decided(start, start, 10, now_ms=START + 15_499) == start
    closing = decided(start, start, 10, now_ms=START + 15_500)
    assert closing == position(10, START + 3_000, START, START + 10_000)
    closed = decided(closing, closing, 10, now_ms=START + 15_501)
    assert closed == position(10, START + 3_000, START + 10_000)
    for later in (START + 25_500, START + 3_600_000):
        assert decided(closed, closed, 10, now_ms=later) == closed


def test_in_silence_the_clock_also_closes_a_window_announced_early() -> None:
    start = position(10, START + 7_000, START, START + 10_000, is_early=True)
    assert decided(start, start, 10, now_ms=START + 15_499) == start
    assert decided(start, start, 10, now_ms=START + 15_500) == position(10, START + 7_000, START + 10_000)


def test_in_silence_the_clock_also_closes_a_window_announced_early_where_events_came_later() -> None:
    start = position(10, START + 7_000, START, START + 10_000, is_early=True)
    reached = position(15, START + 8_000)
    assert decided(start, reached, 15, now_ms=START + 15_499) == start
    assert decided(start, reached, 15, now_ms=START + 15_500) == position(15, START + 8_000, START + 10_000)
    assert decided(start, reached, 16, now_ms=START + 15_500) == start, "unread events are no silence"


def test_old_changes_hold_up_a_window_announced_early_no_longer_than_silence_would() -> None:
    start = position(10, START + 7_000, START, START + 10_000, is_early=True)
    old = [position(20, START - 86_400_000, arrived_ms=START + 7_000 + waited) for waited in (9_000, 9_001)]
    assert decided(start, old[0], 20, now_ms=START + 16_000) == start
    end = replace(old[1], watermark_ms=START + 10_000, closes_ms=START + 10_000)
    assert decided(start, old[1], 20, now_ms=START + 16_001) == end
    assert is_short(start, old[0], heads(99), LIMITS)
    assert not is_short(start, old[1], heads(99), LIMITS)


def test_a_window_waits_for_events_whose_times_advance_slowly() -> None:
    start = position(10, START + 7_000, START, START + 10_000, is_early=True)
    assert decided(start, position(20, START + 7_001, arrived_ms=START + 60_000), 20, now_ms=START + 60_000) == start


def test_a_topic_that_is_behind_is_not_overdue_because_another_is_not() -> None:
    start = ReadPosition(
        {"tweets": TopicPosition(9, START + 7_000, START + 7_000), "users": TopicPosition(0)},
        START,
        START + 10_000,
        True,
    )
    reached = ReadPosition(
        {
            "tweets": TopicPosition(12, START + 7_000, START + 7_000),
            "users": TopicPosition(1, START + 67_000, START + 67_000),
        }
    )
    assert is_short(start, reached, {"tweets": Head(0, 99), "users": Head(0, 1)}, LIMITS)


def test_old_changes_that_arrive_now_do_not_count_as_silence() -> None:
    start = position(10, START - 86_400_000, START - 86_410_000, arrived_ms=START)
    assert decided(start, start, 10, now_ms=START + 4_000) == start


def test_a_topic_with_nothing_in_it_has_no_watermark() -> None:
    start = position(0, 0)
    assert decided(start, start, 0, now_ms=START) == start


def test_a_topic_that_is_read_to_its_end_does_not_hold_back_another() -> None:
    start = ReadPosition({"tweets": TopicPosition(0), "users": TopicPosition(5, START - 60_000, START - 60_000)})
    reached = ReadPosition({"tweets": TopicPosition(9, START, START), "users": start.topics["users"]})
    both = {"tweets": Head(0, 10), "users": Head(0, 5)}
    assert decide(start, reached, both, LIMITS, now_ms=START, last_batch_ms=0).closes_ms == START - 10_000


def test_a_topic_with_unread_events_holds_the_watermark_back() -> None:
    start = ReadPosition({"tweets": TopicPosition(0), "users": TopicPosition(0)})
    reached = ReadPosition(
        {"tweets": TopicPosition(9, START, START), "users": TopicPosition(5, START - 60_000, START - 60_000)}
    )
    both = {"tweets": Head(0, 9), "users": Head(0, 6)}
    assert decide(start, reached, both, LIMITS, now_ms=START, last_batch_ms=0).closes_ms == START - 70_000


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**9)), st.none() | st.integers(1, 10**6))
def test_a_share_is_at_most_the_unread_events_and_at_least_one_of_them(
    unread: dict[str, int], rows_max: int | None
) -> None:
    shares = share_rows(unread, rows_max)
    assert all(min(1, rows) <= shares[topic] <= rows for topic, rows in unread.items())
    assert rows_max is None or sum(shares.values()) <= max(rows_max, rows_max + len(unread))


class Spark:
    """A model of Spark. A window collects events until the batch after the one that closes the window."""

    def __init__(self, limits: WatermarkLimits) -> None:
        self.limits = limits
        self.at = position(0, 0)
        self.events: list[tuple[int, int]] = []
        self.open: Counter[int] = Counter()
        self.final: dict[int, int] = {}
        self.late = 0
        self.last_batch_ms = 0

    def trigger(self, now_ms: int, rows_max: int) -> bool:
        """Run one micro-batch if there is one."""
        head = heads(len(self.events))
        reached = self._reached(rows_max)
        while is_short(self.at, reached, head, self.limits):
            rows_max *= 2
            reached = self._reached(rows_max)
        end = decide(self.at, reached, head, self.limits, now_ms=now_ms, last_batch_ms=self.last_batch_ms)
        if end == self.at:
            return False
        assert end.watermark_ms == self.at.closes_ms <= end.closes_ms
        for time_ms, _ in self.events[self.at.topics["tweets"].next : end.topics["tweets"].next]:
            window = time_ms - time_ms % self.limits.tick_ms
            if window + self.limits.tick_ms <= self.at.watermark_ms:
                self.late += 1
            else:
                self.open[window] += 1
        for window in [window for window in self.open if window + self.limits.tick_ms <= self.at.closes_ms]:
            assert window not in self.final
            self.final[window] = self.open.pop(window)
        if end.topics != self.at.topics:
            self.last_batch_ms = now_ms
        self.at = end
        return True

    def _reached(self, rows_max: int) -> ReadPosition:
        first = self.at.topics["tweets"]
        next_ = min(len(self.events), first.next + rows_max)
        reached = TopicPosition(next_, *self.events[next_ - 1]) if next_ > first.next else first
        return replace(self.at, topics={"tweets": reached})


@given(
    every_ms=st.sampled_from([0, 500, 2_000, 6_000, 10_000, 60_000]),
    tick_ms=st.sampled_from([1_000, 5_000, 10_000]),
    speed=st.sampled_from([0.1, 0.5, 1.0]),
    rows_max=st.integers(20, 200),
    pauses=st.lists(st.integers(1, 2_000), min_size=1, max_size=60),
    look_after=st.integers(1, 9),
    restarts=st.sets(st.integers(0, 59), max_size=3),
)
def test_events_in_order_are_never_late_and_in_silence_every_window_is_published_once(
    every_ms: int, tick_ms: int, speed: float, rows_max: int, pauses: list[int], look_after: int, restarts: set[int]
) -> None:
    spark = Spark(WatermarkLimits(tick_ms=tick_ms, every_ms=every_ms, tells_early=True))
    now = START
    for number, pause in enumerate(pauses):
        now += pause
        spark.events += [(START + round((now - START) * speed), now)] * (50 if number % 7 == 3 else 1)
        if number in restarts:
            spark.last_batch_ms = 0
        if not number % look_after:
            spark.trigger(now, rows_max)
    for number in range(200):
        spark.trigger(now + number * max(every_ms, 100), rows_max)
    assert not spark.trigger(now + 36_000_000, rows_max)
    assert not spark.open
    assert spark.late == 0
    assert sum(spark.final.values()) == len(spark.events)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(-20_000, 20_000), st.integers(0, 20_000)), min_size=1, max_size=30
    )
)
def test_offsets_and_watermark_only_grow_and_no_window_is_final_before_its_time(
    steps: list[tuple[int, int, int]],
) -> None:
    at, now, last_batch = position(0, 0), START, 0
    for rows, shift, pause in steps:
        now += pause
        before = at.topics["tweets"]
        reached = position(before.next + rows, now + min(shift, 0), arrived_ms=now) if rows else at
        after = decide(at, reached, heads(before.next + rows), LIMITS, now_ms=now, last_batch_ms=last_batch)
        assert after.topics["tweets"].next >= before.next
        assert after.closes_ms >= after.watermark_ms >= at.watermark_ms
        # Each batch closes the windows that the batch before it announced to Spark.
        assert after == at or after.watermark_ms == at.closes_ms
        assert after.watermark_ms <= now
        assert after.closes_ms % LIMITS.tick_ms == 0
        if after.topics != at.topics:
            last_batch = now
        at = after
