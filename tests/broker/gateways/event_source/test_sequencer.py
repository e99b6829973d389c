"""In any order of arrival, the sequences come out in order, each once, and none that arrived is lost."""

from hypothesis import given
from hypothesis import strategies as st

from broker.gateways.event_source.sequencer import Sequencer

ARRIVALS = st.lists(st.integers(min_value=1, max_value=60), max_size=150)


def push_in_pieces(sequencer: Sequencer[str], numbers: list[int], cut: int) -> list[str]:
    released: list[str] = []
    for at in range(0, len(numbers), cut):
        released += sequencer.push([(number, f"event {number}") for number in numbers[at : at + cut]])
    return released


@given(st.permutations(range(1, 80)), st.integers(min_value=1, max_value=80))
def test_any_permutation_is_released_in_order(numbers: list[int], cut: int) -> None:
    sequencer = Sequencer[str]()
    assert push_in_pieces(sequencer, numbers, cut) == [f"event {n}" for n in range(1, 80)]
    assert (sequencer.held, sequencer.repeated, sequencer.next) == (0, 0, 80)


@given(ARRIVALS, st.integers(min_value=1, max_value=20))
def test_items_before_the_first_gap_are_released_and_the_others_are_held(numbers: list[int], cut: int) -> None:
    sequencer = Sequencer[str]()
    released = push_in_pieces(sequencer, numbers, cut)
    different = set(numbers)
    gap = next(n for n in range(1, 62) if n not in different)
    assert released == [f"event {n}" for n in range(1, gap)]
    assert sequencer.next == gap
    assert sequencer.held == len(different) - len(released)
    assert sequencer.repeated == len(numbers) - len(different)


@given(ARRIVALS)
def test_at_the_end_held_items_are_released_in_order_and_missing_ones_are_counted(numbers: list[int]) -> None:
    sequencer = Sequencer[str]()
    released = push_in_pieces(sequencer, numbers, 7)
    rest, missing = sequencer.release_all()
    different = sorted(set(numbers))
    assert released + rest == [f"event {n}" for n in different]
    assert missing == (different[-1] - len(different) if different else 0)
    assert (sequencer.held, sequencer.next) == (0, different[-1] + 1 if different else 1)


@given(ARRIVALS)
def test_after_a_gap_is_given_up_the_next_items_are_released_and_late_ones_count_as_repeated(
    numbers: list[int],
) -> None:
    sequencer = Sequencer[str]()
    released = push_in_pieces(sequencer, numbers, 7)
    late = 0
    while sequencer.held:
        more, gap = sequencer.give_up_gap()
        assert more
        assert not set(gap) & set(numbers)
        released += more
        late += len(sequencer.push([(number, "late") for number in gap]))
    assert released == [f"event {n}" for n in sorted(set(numbers))]
    assert late == 0


def test_of_two_with_the_same_sequence_the_first_counts() -> None:
    sequencer = Sequencer[str]()
    assert sequencer.push([(2, "first"), (2, "second"), (1, "one"), (1, "again"), (2, "third")]) == ["one", "first"]
    assert sequencer.repeated == 3


def test_a_sequencer_can_begin_at_any_number() -> None:
    assert Sequencer[str](8).push([(9, "9"), (7, "7"), (8, "8")]) == ["8", "9"]
