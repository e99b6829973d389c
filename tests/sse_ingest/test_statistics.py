"""Percentiles cover the measurements since they were last taken."""

from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.statistics import Timings, percentile


def test_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (75, 85, 95, 100)] == [75, 85, 95, 100]
    assert percentile([7.0], 75) == 7.0


@given(st.lists(st.floats(0, 1e3), min_size=1), st.sampled_from([75, 85, 95]))
def test_at_least_the_given_share_of_the_values_is_not_above_the_percentile(values: list[float], share: int) -> None:
    found = percentile(sorted(values), share)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= share * len(values)


def test_taking_resets_the_figures_and_without_measurements_they_are_absent() -> None:
    timings = Timings()
    timings.add_seconds(0.001, 0.002, 0.003, 0.004)
    assert timings.take_percentiles() == {"p75": 3.0, "p85": 4.0, "p95": 4.0}
    assert timings.take_percentiles() == {"p75": None, "p85": None, "p95": None}
