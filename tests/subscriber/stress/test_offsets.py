"""A set of offsets behaves like a set of integers, and lists the missing offsets."""

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from subscriber.stress.offsets import OffsetSet

OFFSETS = st.integers(min_value=0, max_value=200_000)


def filled(offsets: Iterable[int]) -> OffsetSet:
    offset_set = OffsetSet()
    offset_set.add_all(list(offsets))
    return offset_set


@given(st.lists(OFFSETS))
def test_an_offset_set_has_the_same_offsets_as_a_set(offsets: list[int]) -> None:
    model: set[int] = set()
    offset_set = OffsetSet()
    for offset in offsets:
        assert offset_set.add(offset) is (offset not in model)
        model.add(offset)
    assert len(offset_set) == len(model)
    assert offset_set.first == (min(model) if model else None)
    assert offset_set.last == (max(model) if model else None)
    assert all((offset in offset_set) is (offset in model) for offset in [*offsets, 0, 7, 65_536])


RUNS = st.builds(lambda first, count: list(range(first, first + count)), OFFSETS, st.integers(0, 70_000))


@settings(deadline=None)
@given(st.lists(RUNS | st.lists(OFFSETS, max_size=50), max_size=6))
def test_adding_a_batch_is_the_same_as_adding_its_offsets(batches: list[list[int]]) -> None:
    model: set[int] = set()
    offset_set = OffsetSet()
    for batch in batches:
        again = []
        for offset in batch:
            if offset in model:
                again.append(offset)
            model.add(offset)
        assert offset_set.add_all(batch) == again
        assert len(offset_set) == len(model)
    assert {offset for begin, end in offset_set.ranges() for offset in range(begin, end)} == model
    assert sum(offset_set._counts.values()) == len(model)


@settings(deadline=None)
@given(st.sets(OFFSETS | st.integers(min_value=0, max_value=300)), OFFSETS, OFFSETS)
def test_missing_and_present_offsets_make_up_the_whole(offsets: set[int], start: int, stop: int) -> None:
    offset_set = filled(offsets)
    missing = {offset for begin, end in offset_set.missing(start, stop) for offset in range(begin, end)}
    assert missing == set(range(start, stop)) - offsets
    assert offset_set.count_missing(start, stop) == len(missing)
    present = {offset for begin, end in offset_set.ranges() for offset in range(begin, end)}
    assert present == offsets


@given(st.sets(st.integers(min_value=0, max_value=300), min_size=1))
def test_ranges_are_ascending_and_do_not_touch(offsets: set[int]) -> None:
    ranges = list(filled(offsets).ranges())
    assert all(start < stop for start, stop in ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_a_stream_received_whole_is_one_range_in_shared_blocks() -> None:
    offset_set = filled(range(200_000))
    assert list(offset_set.ranges()) == [(0, 200_000)]
    blocks = [id(block) for block in offset_set._blocks.values()]
    assert len(set(blocks)) == 2  # the complete blocks are one shared object, and only the last block is a separate one
    assert 65_535 in offset_set
    assert not offset_set.add(65_535)


def test_an_offset_far_away_costs_one_block() -> None:
    offset_set = filled([0, 10**9])
    assert list(offset_set.ranges()) == [(0, 1), (10**9, 10**9 + 1)]
