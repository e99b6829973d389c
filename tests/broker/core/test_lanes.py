"""Compare lanes with plain lists of offsets, for each form in which lanes store offsets."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.topic.lanes import Lane, Lanes, _distinct
from broker.log import Stretch

PRIORITIES = st.sampled_from([0, 0, 0, 1, 4, 9])
BATCH = st.lists(PRIORITIES, min_size=1, max_size=30).map(bytes)
STEPS = st.lists(st.one_of(BATCH, st.just("trim"), st.just("extend back")), max_size=16)


@settings(deadline=None)
@given(before=st.lists(PRIORITIES, max_size=60).map(bytes), steps=STEPS, data=st.data())
def test_a_lane_is_the_offsets_of_its_priority(before: bytes, steps: list[bytes | str], data: st.DataObject) -> None:
    """At first `before` is in the log only. Then batches arrive, subscriptions pass events, and others begin further back."""
    lanes = Lanes(len(before), open_max=data.draw(st.sampled_from([2, 8, 50])), stretch=data.draw(st.integers(1, 20)))
    stored = before
    for step in steps:
        ends = {p: lane.end for p, lane in lanes.by_priority.items()}
        if isinstance(step, bytes):
            lanes.extend(Stretch(len(stored), step))
            stored += step
        elif step == "trim":
            passed = {p: data.draw(st.integers(lane.trimmed, lane.end)) for p, lane in lanes.by_priority.items()}
            lanes.trim([passed, ends])
        else:
            extend_back(lanes, data.draw(st.integers(0, len(stored))), stored)
            assert {p: lanes.by_priority[p].end for p in ends} == ends
        for lane in lanes.by_priority.values():
            check(lane, stored)


def test_an_offset_that_comes_back_does_not_take_the_place_of_a_new_one() -> None:
    lanes = Lanes(0, open_max=2, stretch=10)
    lanes.extend(Stretch(0, b"\0\0"))
    lanes.trim([{0: 2}])
    extend_back(lanes, 0, b"\0\0")
    lanes.extend(Stretch(2, b"\0"))
    assert lanes.by_priority[0].slice(0, 9) == [0, 1, 2]


def extend_back(lanes: Lanes, start: int, stored: bytes) -> None:
    if not lanes.reaches(start):
        lanes.extend_back(start, [Stretch(start, stored[start:])])
    assert lanes.reaches(start)
    assert set(stored[start:]) <= lanes.by_priority.keys()


def check(lane: Lane, stored: bytes) -> None:
    held = [offset for offset in range(lane.reach, len(stored)) if stored[offset] == lane.priority]
    assert lane.end - lane.trimmed == len(held)
    assert lane.slice(lane.trimmed, len(stored)) == held
    assert [lane.at(position) for position in range(lane.trimmed, lane.end)] == held
    for first in range(0, len(held), 7):
        assert lane.slice(lane.trimmed + first, 5) == held[first : first + 5]
    for offset in range(lane.reach, len(stored) + 1):
        assert lane.position_of(offset) == lane.trimmed + sum(one < offset for one in held)


@given(st.binary(max_size=300))
def test_the_priorities_of_a_stretch_are_those_of_its_events(priorities: bytes) -> None:
    assert _distinct(priorities) == set(priorities)
