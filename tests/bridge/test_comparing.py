"""A comparison finds exactly what is missing, doubled, misplaced or changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.comparing import Comparison, Differences


def compared(expected: list[int], found: list[int], changed: frozenset[int] = frozenset()) -> Differences:
    comparison = Comparison()
    for key in expected:
        comparison.expect(key, b"x")
    for key in found:
        comparison.find(key, b"y" if key in changed else b"x")
    return comparison.end()


@pytest.mark.parametrize(
    ("found", "missing", "doubled", "misplaced"),
    [
        ([0, 1, 2, 3], 0, 0, 0),
        ([0, 1, 3], 1, 0, 0),
        ([], 4, 0, 0),
        ([0, 1, 1, 2, 3], 0, 1, 0),
        ([0, 1, 2, 3, 0], 0, 1, 0),
        ([0, 2, 1, 3], 0, 0, 1),
        ([3, 0, 1, 2], 0, 0, 3),
        ([0, 2, 2, 1, 1, 3], 0, 2, 1),
    ],
)
def test_each_difference_is_counted(found: list[int], missing: int, doubled: int, misplaced: int) -> None:
    differences = compared([0, 1, 2, 3], found)
    assert (differences.missing, differences.doubled, differences.out_of_order) == (missing, doubled, misplaced)
    assert differences.is_clean == (found == [0, 1, 2, 3])
    assert len(differences.examples) == missing + doubled + misplaced


def test_a_changed_event_is_found() -> None:
    differences = compared([0, 1, 2], [0, 1, 2], frozenset([1]))
    assert (differences.changed, differences.is_clean, differences.examples) == (1, False, ["changed: 1"])


def test_examples_are_limited() -> None:
    assert len(compared(list(range(1000)), []).examples) == 10


def test_trimmed_events_can_be_left_out() -> None:
    comparison = Comparison()
    for key in range(5):
        comparison.expect(key, b"x")
    comparison.drop_before(3)
    comparison.find(3, b"x")
    comparison.find(4, b"x")
    assert comparison.end() == Differences(compared=2)


def test_events_are_in_order_within_a_lane() -> None:
    comparison = Comparison()
    for key in range(6):
        comparison.expect(key, b"x")
    for key, lane in [(1, "a"), (0, "b"), (3, "a"), (2, "b"), (5, "b"), (4, "b")]:
        comparison.find(key, b"x", lane)
    assert comparison.end() == Differences(compared=6, out_of_order=1, examples=["out of order: 4"])


def test_differences_add_up_and_keep_few_examples() -> None:
    one = compared([0, 1, 2], [0, 0, 2])
    assert one + one == Differences(compared=4, missing=2, doubled=2, examples=one.examples * 2)
    many = compared(list(range(1000)), [])
    assert len((many + many).examples) == 10


@given(st.lists(st.integers(0, 9), max_size=20))
def test_only_an_exact_copy_is_clean(found: list[int]) -> None:
    differences = compared(list(range(10)), found)
    assert differences.is_clean == (found == list(range(10)))
    assert differences.missing == 10 - len(set(found))
    assert differences.doubled == len(found) - len(set(found))
