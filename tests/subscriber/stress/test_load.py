"""An open-loop plan does not depend on the broker, and faults, order checks and histograms are correct."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from subscriber.stress.account import StressAccount
from subscriber.stress.faults import Faults
from subscriber.stress.latency import LatencyHistogram
from subscriber.stress.load import Plan, due_us, number_of
from subscriber.stress.order import OrderCheck
from tweetwire import StoredEvent
from tweetwire.protocol.events import encode_event

BEGAN_AT = 1_790_000_000.0


def stored(offset: int, *, priority: int = 0, attempt: int = 1, timestamp: int = 0) -> StoredEvent:
    return StoredEvent(
        topic="t",
        offset=offset,
        timestamp=timestamp,
        id=str(offset),
        priority=priority,
        msg=msgspec.Raw(b"0"),
        attempt=attempt,
    )


@given(st.floats(min_value=0.1, max_value=1e6), st.integers(min_value=0, max_value=10_000))
def test_an_event_is_due_at_its_time_and_not_before(rate: float, number: int) -> None:
    plan = Plan("p", rate, sizes=[200], priorities=1, seed=0)
    due = plan.due_s(number)
    assert plan.count_due(due + 0.01 / rate) == number + 1
    assert plan.count_due(due - 0.01 / rate) == number


@given(st.integers(min_value=0, max_value=10**9), st.sampled_from([60, 200, 4096]))
def test_an_event_carries_when_it_was_due_and_is_as_large_as_wanted(number: int, size: int) -> None:
    plan = Plan("p", 1000.0, sizes=[size], priorities=7, seed=0)
    line = encode_event(plan.event(number, BEGAN_AT))
    event = msgspec.json.decode(b'{"topic":"t","offset":0,"timestamp":0,' + line[1:], type=StoredEvent)
    assert due_us(event) == round((BEGAN_AT + number / 1000) * 1e6)
    assert len(event.msg) == size
    assert number_of(event) == ("p", number)
    assert 0 <= event.priority < 7


def test_an_event_outside_the_plan_has_no_due_time() -> None:
    assert due_us(stored(0)) is None
    assert number_of(stored(0)) is None


@given(st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.3), st.integers(0, 2**32))
def test_each_delivery_has_one_outcome(nack: float, stall: float, vanish: float, seed: int) -> None:
    faults, events = Faults(nack, stall, vanish, seed), [stored(offset) for offset in range(50)]
    lot = faults.draw(events)
    if lot.is_vanishing:
        assert (faults.vanished, len(lot.acked), len(lot.nacked)) == (1, 0, 0)
    else:
        assert len(lot.acked) + len(lot.nacked) + lot.stalled == 50
        assert not {event.offset for event in lot.acked} & {event.offset for event in lot.nacked}
    assert nack or not lot.nacked


def test_the_shares_of_faults_are_approximately_kept() -> None:
    faults = Faults(0.1, 0.2, 0.0, 1)
    faults.draw([stored(offset) for offset in range(20_000)])
    assert abs(faults.nacked / 20_000 - 0.1) < 0.01
    assert abs(faults.stalled / 20_000 - 0.2) < 0.01


def test_only_first_deliveries_must_be_in_order_within_their_priority() -> None:
    order = OrderCheck()
    order.note([stored(5, priority=1), stored(3), stored(9, priority=1), stored(4)], 1)
    order.note([stored(1, attempt=2), stored(6)], 1)
    assert order.disordered == 0
    order.note([stored(5), stored(8, priority=1), stored(7)], 1)
    assert order.disordered == 2
    order.note([stored(0)], 2)
    assert order.disordered == 2


def test_missing_and_doubled_events_are_reported() -> None:
    account, plan = StressAccount(), Plan("p", 1000.0, sizes=[60], priorities=1, seed=0)
    ledger = account.ledger_of("t", "s")

    def came(number: int, offset: int) -> StoredEvent:
        line = encode_event(plan.event(number, BEGAN_AT))
        place = b'{"topic":"t","offset":%d,"timestamp":0,' % offset
        return msgspec.json.decode(place + line[1:], type=StoredEvent)

    account.note_arrival(ledger, [came(0, 10), came(2, 11)])
    account.note_arrival(ledger, [came(2, 11)])
    assert (account.twice, ledger.redelivered, account.not_arrived("t", {"p": 3})) == (0, 1, 1)
    account.note_arrival(ledger, [came(1, 12), came(0, 13)])
    assert (account.twice, account.not_arrived("t", {"p": 3})) == (1, 0)


@given(st.lists(st.floats(0, 1e6), max_size=50), st.lists(st.floats(0, 1e6), max_size=50))
def test_histograms_of_several_processes_add_up(ones: list[float], others: list[float]) -> None:
    one, other, both = LatencyHistogram(), LatencyHistogram(), LatencyHistogram()
    for histogram, values in ((one, ones), (other, others), (both, ones + others)):
        for value in values:
            histogram.record(value)
    one.add_counts(msgspec.json.decode(msgspec.json.encode(other.as_counts())))
    assert (one.count, one.max_ms) == (both.count, both.max_ms)
    assert one.percentile(0.9) == both.percentile(0.9)
