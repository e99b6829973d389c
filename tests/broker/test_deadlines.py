"""Deadlines of what is in flight: exact to a step, and never dearer for how often an event was tried or how many there are."""

from broker.core.deadlines import STEP_MS, Deadlines


class InFlight(set[int]):
    """Counts how often somebody looks."""

    looks = 0

    def __contains__(self, offset: object) -> bool:
        self.looks += 1
        return super().__contains__(offset)


def test_an_event_fails_at_its_last_deadline_alone() -> None:
    deadlines, in_flight = Deadlines(), {1, 2}
    deadlines.add([1, 2], 1000, in_flight)
    deadlines.move(1, 1500, in_flight)
    assert deadlines.expired(1000, in_flight) == [2]
    assert deadlines.expired(1499, in_flight) == []
    assert deadlines.expired(1500, in_flight) == [1]
    assert deadlines.next is None


def test_one_event_tried_a_hundred_thousand_times_is_looked_at_a_few_times_each() -> None:
    deadlines, in_flight = Deadlines(), InFlight({7})
    for number in range(100_000):
        deadlines.suspend(7)
        deadlines.move(7, 30_000 + number, in_flight)
    assert in_flight.looks < 300_000
    assert deadlines.next is not None
    last = 30_000 + 99_999
    assert deadlines.expired(last - STEP_MS, in_flight) == []
    assert deadlines.expired(last + STEP_MS, in_flight) == [7]


def test_many_events_in_flight_are_looked_at_a_few_times_each() -> None:
    deadlines, in_flight = Deadlines(), InFlight(range(100_000))
    for first in range(0, 100_000, 10):
        deadlines.add(list(range(first, first + 10)), 30_000 + first, in_flight)
    assert in_flight.looks < 300_000
    assert deadlines.expired(200_000, in_flight) == list(range(100_000))
