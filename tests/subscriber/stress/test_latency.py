"""Percentiles from buckets are accurate to the width of a bucket, for any number of events."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subscriber.stress.latency import LatencyHistogram

LATENCIES = st.lists(st.floats(min_value=0.2, max_value=1e6), min_size=1, max_size=200)


def recorded(latencies_ms: list[float]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for latency in latencies_ms:
        histogram.record(latency)
    return histogram


@given(LATENCIES, st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_within_one_percent_of_the_exact_one(latencies_ms: list[float], share: float) -> None:
    exact = sorted(latencies_ms)[math.ceil(share * len(latencies_ms)) - 1]
    assert recorded(latencies_ms).percentile(share) == pytest.approx(exact, rel=0.0101)


def test_without_events_there_is_no_percentile() -> None:
    assert LatencyHistogram().percentile(0.5) is None


def test_a_day_of_latencies_needs_a_thousand_buckets() -> None:
    histogram = LatencyHistogram()
    for latency in range(1, 86_400_000, 1000):
        histogram.record(latency)
    assert histogram.count == 86_400
    assert len(histogram._buckets) < 1_100


def test_a_negative_latency_counts_as_zero() -> None:
    histogram = recorded([-5.0, 0.0])
    assert histogram.percentile(1.0) == 0.0
    assert histogram.sum_ms == 0.0


def test_events_recorded_together_count_each() -> None:
    histogram = LatencyHistogram()
    histogram.record(10.0, events=99)
    histogram.record(1000.0)
    assert histogram.percentile(0.99) == pytest.approx(10, rel=0.01)
    assert histogram.percentile(1.0) == pytest.approx(1000, rel=0.01)
    assert histogram.cumulative((1.0, 100.0, 10_000.0)) == [0, 99, 100]
