"""The limit of rows in a batch: low at first, then as many rows as are processed in some seconds."""

import pytest

from spark.connector.pace import Pace


def rows_of(pace: Pace, per_second: float, batches: int, *, cost_s: float = 0.3) -> list[int]:
    """Return the row limits of full batches, on a machine that processes `per_second` rows a second."""
    found, now_ms = [], 0
    for _ in range(batches):
        found.append(pace.rows)
        pace.begin(now_ms)
        now_ms += round((cost_s + pace.rows / per_second) * 1000)
        pace.end(now_ms)
    return found


def test_a_fast_machine_soon_takes_as_many_as_it_may() -> None:
    assert rows_of(Pace(500_000), 140_000, 6) == [50_000, 100_000, 200_000, 400_000, 500_000, 500_000]


@pytest.mark.parametrize("per_second", [5_000, 10_000, 20_000, 45_000, 100_000])
def test_no_batch_takes_longer_than_ten_seconds_except_the_smallest(per_second: int) -> None:
    pace = Pace(2_000_000)
    assert all(rows / per_second <= 10 or rows == 50_000 for rows in rows_of(pace, per_second, 20))


def test_a_machine_that_becomes_slow_gets_less_and_one_that_recovers_more() -> None:
    pace = Pace(500_000)
    rows_of(pace, 140_000, 10)
    assert rows_of(pace, 20_000, 4) == [500_000, 250_000, 125_000, 125_000]
    assert rows_of(pace, 140_000, 3) == [125_000, 250_000, 500_000]


def test_a_batch_counts_once_and_a_bound_below_the_first_batch_holds() -> None:
    pace = Pace(20)
    pace.end(5)
    assert pace.rows == 20
    pace.begin(0)
    for now_ms in (30_000, 60_000):
        pace.end(now_ms)
    assert pace.rows == 20
    pace = Pace(500_000)
    pace.begin(0)
    for now_ms in (1, 2, 3):
        pace.end(now_ms)
    assert pace.rows == 100_000
