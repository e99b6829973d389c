"""Pauses grow, are never the same for everybody, and begin anew after success."""

from change_stream.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=1.0, max_s=4.0)
    pauses = [backoff.pause_s() for _ in range(6)]
    for pause, longest in zip(pauses, [1, 2, 4, 4, 4, 4], strict=True):
        assert longest / 2 <= pause <= longest


def test_two_clients_do_not_pause_alike() -> None:
    first, second = Backoff(), Backoff()
    assert [first.pause_s() for _ in range(5)] != [second.pause_s() for _ in range(5)]


def test_success_begins_anew() -> None:
    backoff = Backoff(first_s=1.0, max_s=100.0)
    for _ in range(5):
        backoff.pause_s()
    backoff.reset()
    assert backoff.pause_s() <= 1.0
