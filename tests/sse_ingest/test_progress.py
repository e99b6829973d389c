"""The position is never after an unsettled event, and reaches the end when all events are settled."""

import random

from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.progress import UNTRACKED, Progress


def test_the_position_follows_the_oldest_unsettled_event() -> None:
    progress = Progress("0")
    first, second, third = (progress.begin(last_id) for last_id in ("1", "2", "3"))
    progress.expect(second, 1)
    progress.settle_event(second)
    assert progress.position == "0"
    progress.expect(first, 2)
    progress.settle_event(first)
    assert progress.position == "0"
    progress.settle_event(first)
    assert progress.position == "2"
    progress.expect(third, 0)
    assert progress.position == "3"


def test_an_event_that_was_not_admitted_holds_nothing_up() -> None:
    progress = Progress()
    first, second = progress.begin("1"), progress.begin("2")
    progress.withdraw(second)
    progress.expect(first, 0)
    third = progress.begin("3")
    progress.expect(third, 0)
    assert progress.position == "3"


def test_an_event_can_be_withdrawn_after_others_were_registered() -> None:
    progress = Progress()
    first, second = progress.begin("1"), progress.begin("2")
    progress.withdraw(first)
    progress.expect(second, 0)
    assert progress.position == "2"


def test_events_without_ids_are_not_tracked() -> None:
    progress = Progress("5")
    assert progress.begin("") == UNTRACKED
    progress.expect(UNTRACKED, 3)
    progress.settle_event(UNTRACKED)
    progress.withdraw(UNTRACKED)
    assert progress.position == "5"


@given(st.lists(st.integers(0, 3), max_size=30), st.randoms(use_true_random=False))
def test_in_whatever_order_parts_are_settled_nothing_unsettled_is_passed(parts: list[int], dice: random.Random) -> None:
    progress = Progress("0")
    numbers = [progress.begin(str(place + 1)) for place in range(len(parts))]
    left = dict(zip(numbers, parts, strict=True))
    steps = [(number, "expect") for number in numbers] + [
        (n, "settle") for n, many in left.items() for _ in range(many)
    ]
    dice.shuffle(steps)
    steps.sort(key=lambda step: step[1])
    open_events = set(numbers)
    for number, step in steps:
        if step == "expect":
            progress.expect(number, left[number])
        else:
            left[number] -= 1
            progress.settle_event(number)
        if left[number] == 0:
            open_events.discard(number)
        assert int(progress.position) < min(open_events, default=len(parts) + 1)
    assert progress.position == str(len(parts))
