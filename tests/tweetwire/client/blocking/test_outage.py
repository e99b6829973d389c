"""A blocking client tries to reconnect until its time limit, with a pause before each attempt."""

import pytest

from tweetwire.client.blocking.outage import ConnectionOutage
from tweetwire.client.engine.pauses import FIRST_S, MAX_S, SETTLED_S


def test_an_outage_ends_after_its_time_and_the_next_check_begins_another_one() -> None:
    outage = ConnectionOutage(10.0)
    outage.note_connected(100.0)
    outage.note_lost(200.0)
    assert not outage.is_over(200.0)
    assert not outage.is_over(209.0)
    assert outage.is_over(210.0)
    assert not outage.is_over(211.0)
    assert not outage.is_over(220.0)
    assert outage.is_over(221.0)


def test_an_answer_ends_an_outage() -> None:
    outage = ConnectionOutage(10.0)
    assert not outage.is_over(0.0)
    outage.note_connected(5.0)
    outage.end()
    outage.note_lost(6.0)
    assert not outage.is_over(15.0)
    assert not outage.is_over(24.0)
    assert outage.is_over(25.0)


def test_a_connection_that_stays_ends_an_outage_and_one_that_is_lost_soon_does_not() -> None:
    outage = ConnectionOutage(10.0)
    assert not outage.is_over(0.0)
    outage.note_connected(4.0)
    outage.note_lost(4.0 + SETTLED_S)
    assert not outage.is_over(9.0)
    outage.note_connected(9.0)
    outage.note_lost(10.0)
    assert outage.is_over(10.0)
    assert not outage.is_over(10.0)
    outage.note_connected(11.0)
    outage.note_lost(30.0)
    assert not outage.is_over(30.0)


@pytest.mark.parametrize(("within_s", "is_over"), [(None, False), (0.0, True)])
def test_an_outage_without_a_limit_lasts_and_one_with_limit_0_is_over_at_once(
    within_s: float | None, is_over: bool
) -> None:
    outage = ConnectionOutage(within_s)
    for now in (0.0, 0.0, 1e9):
        assert outage.is_over(now) is is_over


def test_attempts_follow_growing_pauses_until_a_connection_lasts() -> None:
    outage = ConnectionOutage(None)
    outage.note_connected(0.0)
    outage.note_lost(1.0)
    assert 1.0 < outage.next_attempt_at <= 1.0 + FIRST_S
    for _ in range(10):
        outage.note_failed(2.0)
    assert outage.next_attempt_at >= 2.0 + MAX_S / 2
    outage.note_connected(3.0)
    outage.note_lost(60.0)
    assert outage.next_attempt_at <= 60.0 + FIRST_S
