"""Lanes against a plain list of what they hold, whichever form the offsets stand in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.lanes import Lanes
from broker.log import Stretch

PRIORITIES = st.sampled_from([0, 0, 0, 1, 4, 9])
BATCHES = st.lists(st.lists(PRIORITIES, min_size=1, max_size=30).map(bytes), max_size=12)


@settings(deadline=None)
@given(before=st.lists(PRIORITIES, max_size=60).map(bytes), batches=BATCHES, data=st.data())
def test_a_lane_is_the_offsets_of_its_priority(before: bytes, batches: list[bytes], data: st.DataObject) -> None:
    """`before` is in the log alone at first; then batches come, readers pass events, and one goes back to the start."""
    lanes = Lanes(
        len(before), open_max=data.draw(st.sampled_from([8, 50, 1000])), stretch=data.draw(st.integers(1, 20))
    )
    stored = before
    for batch in batches:
        lanes.extend(Stretch(len(stored), batch))
        stored += batch
        if data.draw(st.booleans()):
            passed = {p: data.draw(st.integers(lane.trimmed, lane.end)) for p, lane in lanes.by_priority.items()}
            lanes.trim([passed, {p: lane.end for p, lane in lanes.by_priority.items()}])
    check(lanes, stored)
    start = data.draw(st.integers(0, len(stored)))
    if not lanes.reaches(start):
        numbers = {p: lane.end for p, lane in lanes.by_priority.items()}
        lanes.extend_back(start, [Stretch(start, stored[start:])])
        assert {p: lane.end for p, lane in lanes.by_priority.items() if p in numbers} == numbers
        assert set(stored[start:]) <= lanes.by_priority.keys()
        check(lanes, stored)
    assert lanes.reaches(start)


def check(lanes: Lanes, stored: bytes) -> None:
    for priority, lane in lanes.by_priority.items():
        held = [offset for offset in range(lane.reach, len(stored)) if stored[offset] == priority]
        assert lane.end - lane.trimmed == len(held)
        assert lane.slice(lane.trimmed, len(stored)) == held
        assert [lane.at(position) for position in range(lane.trimmed, lane.end)] == held
        for first in range(0, len(held), 7):
            assert lane.slice(lane.trimmed + first, 5) == held[first : first + 5]
        for offset in range(lane.reach, len(stored) + 1):
            assert lane.position_of(offset) == lane.trimmed + sum(one < offset for one in held)
