"""Pauses double up to a limit, are drawn from the upper half of their limit, and begin again after a success."""

from hypothesis import given
from hypothesis import strategies as st

from tweetwire.backoff import Backoff


@given(st.integers(1, 60), st.floats(0, 1), st.floats(0, 1000))
def test_a_pause_is_in_the_upper_half_of_its_limit_unless_the_server_asks_for_more(
    failures: int, drawn: float, asked_s: float
) -> None:
    longest_s = min(0.5 * 2 ** (failures - 1), 30)
    backoff = Backoff(0.5, 30, lambda: drawn)
    for _ in range(failures - 1):
        backoff.next_pause_s()
    pause_s = backoff.next_pause_s(asked_s)
    assert backoff.failures == failures
    assert max(longest_s / 2, asked_s) <= pause_s <= max(longest_s, asked_s * 1.2)


def test_a_very_long_outage_keeps_the_longest_pause() -> None:
    backoff = Backoff(0.5, 30, lambda: 1.0)
    assert [backoff.next_pause_s() for _ in range(5_000)][-1] == 30


def test_two_clients_have_different_pauses() -> None:
    first, second = Backoff(), Backoff()
    assert [first.next_pause_s() for _ in range(5)] != [second.next_pause_s() for _ in range(5)]


def test_a_success_begins_again_with_the_first_pause() -> None:
    backoff = Backoff(first_s=1.0, max_s=100.0)
    for _ in range(5):
        backoff.next_pause_s()
    backoff.reset()
    assert backoff.next_pause_s() <= 1.0
