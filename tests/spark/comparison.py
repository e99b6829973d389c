"""Compare windows: exactly, except for the approximate statistics."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spark.statistics.tweets_stats import UNIQUE_USERS_ERROR
from tests.spark import reference
from tests.spark.reference import Row


def assert_tweets_equal(found: dict[str, Any], expected: dict[int, Row]) -> None:
    assert sorted(found) == sorted(reference.iso(start) for start in expected)
    for window in expected.values():
        got = dict(found[window["window"]["start"]])
        users, exact_users = got.pop("unique_users"), window["unique_users"]
        assert users == pytest.approx(exact_users, rel=4 * UNIQUE_USERS_ERROR, abs=1)
        assert_close(got, {name: value for name, value in window.items() if name != "unique_users"})


def assert_totals(
    found: Sequence[Row], expected: dict[int, Row], summed: Callable[[list[Row]], Row] = reference.tweets_totals
) -> None:
    """Check that each window's event carries the sums of all windows up to its own."""
    ordered = [window for _, window in sorted(expected.items())]
    assert len(found) == len(ordered)
    for place, totals in enumerate(found):
        assert_close(totals, summed(ordered[: place + 1]))


def assert_close(got: Any, wanted: Any) -> None:
    """Compare exactly, except for the last digits of floating-point sums."""
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys()
        for name in wanted:
            assert_close(got[name], wanted[name])
    elif isinstance(wanted, list):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_close(one, other)
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    else:
        assert got == wanted
