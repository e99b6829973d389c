"""A clock that was wrong for some time: events of that time do not affect others, and no event waits or stays forever."""

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.clock import Clock
from broker.core.dates import HELD_MS
from broker.log import Batch, CommitLog
from broker.log.dates import Dated, arrivals, find_moment
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Event, SyncClient

NOW = 1_790_000_000_000
HOUR = 3_600_000
YEARS = 50 * 365 * 24 * HOUR


class Clocked:
    """A topic ``t`` on a broker whose system clock may be set."""

    def __init__(self) -> None:
        self.core = Core("t", now_ms=NOW)
        self.session = self.core.connect()

    def set_clock(self, shift_ms: int) -> None:
        self.core.broker.set_date_shift(shift_ms)

    def publish(self, *ids: str, priority: int = 0) -> None:
        lines = (json.dumps({"id": id_, "priority": priority, "msg": "x" * 100}) for id_ in ids)
        self.core.type(self.session, *(f"pub t {line}" for line in lines))

    def dates(self) -> list[int]:
        _, *lines = self.core.type(self.session, "read t 0")
        return [json.loads(line)["timestamp"] for line in lines]

    def ids_from(self, time_ms: int) -> list[str]:
        at = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
        reply = self.core.type(self.core.connect(), f"sub t from={at} prefetch=1000")
        return [json.loads(line)["id"] for line in reply if line.startswith("{")]

    def forget(self) -> int:
        """Apply retention, as a server does once a second. Return the first remaining offset."""
        topic = self.core.broker.topics["t"]
        assert topic.retention.age_ms is not None
        if topic.log.last_arrived < self.core.now_ms - topic.retention.age_ms:
            topic.log.end_older(self.core.now_ms - topic.retention.age_ms)
        for topic, forgetting in self.core.broker.forget_old(self.core.now_ms).items():
            topic.log.forget_below(forgetting.below)
        return topic.log.earliest


@pytest.fixture
def clocked() -> Clocked:
    return Clocked()


@pytest.mark.parametrize("wrong", [YEARS, -YEARS, HOUR, -HOUR])
def test_an_event_that_was_stored_while_the_clock_was_wrong_harms_no_other(clocked: Clocked, wrong: int) -> None:
    core = clocked.core
    clocked.publish("before")
    core.pass_time(10)
    clocked.set_clock(wrong)
    clocked.publish("wrong")
    core.pass_time(10)
    clocked.set_clock(0)
    clocked.publish("after")
    core.pass_time(10)
    clocked.publish("last")
    assert clocked.dates() == [NOW, NOW + 10_000 + wrong, NOW + 20_000, NOW + 30_000]
    for at_ms, ids in (
        (NOW + 25_000, ["last"]),
        (NOW + 30_001, []),
        (NOW + 15_000, ["wrong", "after", "last"] if wrong > 0 else ["after", "last"]),
    ):
        found = clocked.ids_from(at_ms)
        # If the clock was behind, a search may return too many events, but never too few.
        assert found == ids or (wrong < 0 and found[-len(ids) :] == ids)
    core.type(clocked.session, "retain t age=60s")
    core.pass_time(59)
    assert clocked.forget() == 0
    core.pass_time(2)
    assert clocked.forget() == 4


def test_a_broker_that_starts_with_the_right_clock_again_is_not_held_back_by_dates_ahead() -> None:
    clocked = Clocked()
    core = clocked.core
    core.now_ms += YEARS
    clocked.publish("ahead")
    core.now_ms -= YEARS
    core.restart()
    clocked.session = core.connect()
    clocked.publish("a")
    core.pass_time(10)
    clocked.publish("b")
    assert clocked.dates() == [NOW + YEARS, NOW, NOW + 10_000]
    assert clocked.ids_from(NOW + 5_000) == ["b"]


def test_events_that_waited_too_long_go_first_also_after_the_clock_was_set_back(clocked: Clocked) -> None:
    core, reader = clocked.core, clocked.core.connect()
    core.type(reader, "sub t as=s max_wait=5s")
    clocked.set_clock(YEARS)
    clocked.publish("first", "low")
    core.receive(reader)
    clocked.set_clock(-HOUR)
    for _ in range(7):
        clocked.publish("high", priority=9)
        core.pass_time(1)
    (line,) = [line for line in core.type(reader, "ack t first") if line.startswith("{")]
    assert json.loads(line)["id"] == "low"


def test_timers_are_not_affected_when_the_clock_is_set(clocked: Clocked) -> None:
    core, reader = clocked.core, clocked.core.connect()
    core.type(reader, "sub t as=s timeout=10s backoff=4s")
    clocked.publish("a")
    assert len(core.receive(reader)) == 1
    clocked.set_clock(-YEARS)
    core.pass_time(10.2)
    (reply,) = core.type(clocked.session, "explain t @0 as=s")
    explained = json.loads(reply.split(" ", 4)[4])
    assert explained["state"] == "delayed"
    assert explained["errors"][0]["at"] == pytest.approx(NOW - YEARS + 10_000, abs=200)
    assert explained["until"] == pytest.approx(NOW - YEARS + 14_000, abs=200)
    core.pass_time(4.2)
    assert len(core.receive(reader)) == 1


def test_after_a_small_step_back_dates_wait_for_the_clock(clocked: Clocked) -> None:
    clocked.publish("a")
    clocked.set_clock(-HELD_MS)
    clocked.publish("b")
    clocked.core.pass_time(50)
    clocked.publish("c")
    clocked.core.pass_time(20)
    clocked.publish("d")
    assert clocked.dates() == [NOW, NOW, NOW, NOW + 70_000 - HELD_MS]
    assert clocked.ids_from(NOW) == ["a", "b", "c", "d"]


def test_dates_do_not_run_back_within_a_batch(clocked: Clocked) -> None:
    core = clocked.core
    core.hold = True
    clocked.publish("a")
    clocked.set_clock(-HOUR)
    clocked.publish("b")
    core.hold = False
    core.carry_out()
    clocked.publish("c")
    assert clocked.dates() == [NOW, NOW, NOW - HOUR]


def batch(first: int, *dates: int, arrived_ms: int | None = None) -> Batch:
    lines = [
        b'{"topic":"t","offset":%d,"timestamp":%d,"id":"%d","priority":0,"msg":0}\n' % (n, date, n)
        for n, date in enumerate(dates, first)
    ]
    return Batch(first, lines, list(dates), [0] * len(lines), arrived_ms)


@pytest.mark.parametrize("indexes", ["there", "gone"])
def test_a_log_of_many_dates_is_searched_and_ages_after_a_restart(tmp_path: Path, indexes: str) -> None:
    log = CommitLog(tmp_path / "t")
    log.append(batch(0, NOW, NOW + 1, NOW + YEARS, arrived_ms=NOW + 2))
    log.append(batch(3, NOW + 10, NOW + 20))
    log.append(batch(5, 1000, 2000, arrived_ms=NOW + 30))
    log.append(batch(7, NOW + 40))
    log.append(batch(8, NOW + 39))
    assert [span.arrived_ms for span in log.spans()] == [NOW + 2, NOW + 20, NOW + 40]
    log.close()
    if indexes == "gone":
        for path in (tmp_path / "t").glob("*.index"):
            path.unlink()
    log = CommitLog(tmp_path / "t", now_ms=NOW + HOUR)
    assert [span.arrived_ms for span in log.spans()] == [NOW + 10, NOW + 20, NOW + 39]
    assert log.last_arrived == NOW + 39
    found = {time_ms: log.offset_at(NOW + time_ms, NOW + HOUR) for time_ms in (-1, 0, 1, 2, 5, 10, 15, 20, 39, 41)}
    assert found == {-1: 0, 0: 0, 1: 1, 2: 2, 5: 2, 10: 2, 15: 4, 20: 4, 39: 5, 41: 9}
    log.close()


def test_a_log_that_an_older_broker_left_with_dates_ahead_continues_with_right_ones(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "t")
    # Make the folder of an older version: one event with the clock ahead, and all later events have its timestamp.
    log.append(batch(0, NOW, *[NOW + YEARS] * 5))
    log.close()
    log = CommitLog(tmp_path / "t", now_ms=NOW + HOUR)
    assert log.last_arrived == NOW + HOUR
    log.append(batch(6, NOW + HOUR))
    assert log.offset_at(NOW + HOUR, NOW + HOUR) == 1
    assert log.offset_at(NOW + HOUR + 1, NOW + HOUR) == 7
    log.close()


def parts(*hours: tuple[float, float]) -> list[Dated]:
    return [Dated(NOW + round(first * HOUR), NOW + round(last * HOUR)) for first, last in hours]


LOST = Dated(1000, 2000)
AHEAD = 10**6


@pytest.mark.parametrize(
    ("dated", "arrived"),
    [
        (parts((0, 1), (1, 2), (2, 3)), [1, 2, 3]),
        (parts((0, AHEAD), (3, 4)), [3, 4]),
        (parts((0, 1), (AHEAD, AHEAD), (3, 4)), [1, 3, 4]),
        (parts((AHEAD, AHEAD)), [10]),
        (parts((AHEAD, AHEAD), (3, 4)), [3, 4]),
        # Events stored before the computer lost its clock must not look older than they are.
        ([*parts((0, 1)), LOST, *parts((5, 6))], [1, 1, 6]),
        ([*parts((0, 1)), LOST, LOST, LOST], [1, 1, 1, 1]),
        ([*parts((0, 1), (1, 2)), LOST, *parts((0.5, 3))], [0.5, 0.5, 0.5, 3]),
        ([], []),
    ],
)
def test_the_arrival_of_parts_is_estimated_from_their_dates(dated: list[Dated], arrived: list[float]) -> None:
    assert [(at - NOW) / HOUR for at in arrivals(dated, NOW + 10 * HOUR)] == arrived


def test_a_moment_is_searched_in_a_part_whose_dates_can_be_right() -> None:
    dated = [*parts((0, 1)), LOST, *parts((2, AHEAD), (4, 5))]

    def found(hours: int) -> int | None:
        return find_moment(dated, NOW + hours * HOUR, NOW + 10 * HOUR, lambda number, _: number)

    assert [found(hours) for hours in (0, 1, 2, 3, 4, 5, 6)] == [None, 0, 0, 2, 2, 3, 3]


def test_the_brokers_clock_continues_when_the_systems_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, real = Clock(), time.time_ns
    began = clock.now_ms()
    assert abs(clock.shift_ms()) < 1000
    monkeypatch.setattr(time, "time_ns", lambda: real() - YEARS * 1_000_000)
    assert clock.shift_ms() == pytest.approx(-YEARS, abs=1000)
    assert began <= clock.now_ms() < began + 60_000


_SHIFTED = "import runpy, time; real = time.time_ns; time.time_ns = lambda: real() + {} * 10**6;" + (
    " runpy.run_module('broker', run_name='__main__', alter_sys=True)"
)


class ShiftedBroker(BrokerProcess):
    """A broker on a computer whose clock is `shift_ms` ahead."""

    shift_ms = 0

    def command(self) -> list[str]:
        return [sys.executable, "-c", _SHIFTED.format(self.shift_ms), *self.words[1:]]


def test_a_topic_recovers_from_a_clock_that_was_ahead_before_a_restart(tmp_path: Path) -> None:
    broker = ShiftedBroker(tmp_path / "broker")
    broker.shift_ms = YEARS
    with broker:
        with SyncClient(broker.address) as client:
            client.publish("t", Event(id="ahead", msg=1))
        broker.kill()
        broker.shift_ms = 0
        broker.start()
        assert (
            len(broker.logged("events are dated in the future; new events get the date of the clock as it is now")) == 1
        )
        with SyncClient(broker.address) as client:
            client.publish("t", Event(id="now", msg=1))
            ahead, now = client.read("t", 0).events
            assert ahead.timestamp - now.timestamp == pytest.approx(YEARS, abs=60_000)
            assert now.timestamp == pytest.approx(time.time() * 1000, abs=60_000)
            client.command("retain t age=1s")
            until(lambda: client.read("t", 0).events == [])
