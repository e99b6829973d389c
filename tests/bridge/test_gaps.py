"""Missing events become gaps, each with its reason, and no event is in a gap."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bridge.gaps import DAMAGED, REMOVED, Gap, gaps, unbroken
from tests.bridge.records import stored


def test_events_before_the_log_were_removed_and_others_are_damaged() -> None:
    assert gaps(3, 9, 20) == [Gap(3, 9, REMOVED)]
    assert gaps(3, 9, 10) == [Gap(3, 9, REMOVED)]
    assert gaps(3, 9, 3) == [Gap(3, 9, DAMAGED)]
    assert gaps(3, 9, 5) == [Gap(3, 4, REMOVED), Gap(5, 9, DAMAGED)]
    assert str(Gap(3, 4, REMOVED)) == f"{REMOVED}: 3 to 4"


@given(st.sets(st.integers(0, 40)))
def test_runs_have_all_events_in_order_and_no_hole(offsets: set[int]) -> None:
    events = [stored(offset) for offset in sorted(offsets)]
    runs = [[event.offset for event in run] for run in unbroken(events)]
    assert [offset for run in runs for offset in run] == sorted(offsets)
    assert all(run == list(range(run[0], run[0] + len(run))) for run in runs)
    assert all(before[-1] + 1 < after[0] for before, after in pairwise(runs))
