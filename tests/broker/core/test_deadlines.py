"""Deadlines of events in flight: exact to a step, at a cost that does not grow with the number of events or tries."""

import json

from broker.core.topic.deadlines import STEP_MS, Deadlines
from tests.broker.core.harness import Core
from tweetwire.protocol import parse_lines
from tweetwire.protocol.errors import Refusal


class InFlight(set[int]):
    """Counts the lookups in the set."""

    looks = 0

    def __contains__(self, offset: object) -> bool:
        self.looks += 1
        return super().__contains__(offset)


def test_an_event_times_out_only_at_its_last_deadline() -> None:
    deadlines, in_flight = Deadlines(), {1, 2}
    deadlines.add([1, 2], 1000, in_flight)
    deadlines.move(1, 1500, in_flight)
    assert deadlines.expired(1000, in_flight) == [2]
    assert deadlines.expired(1499, in_flight) == []
    assert deadlines.expired(1500, in_flight) == [1]
    assert deadlines.next is None


def test_a_hundred_thousand_tries_of_one_event_cost_a_few_lookups_each() -> None:
    deadlines, in_flight = Deadlines(), InFlight({7})
    for number in range(100_000):
        deadlines.suspend(7)
        deadlines.move(7, 30_000 + number, in_flight)
    assert in_flight.looks < 300_000
    assert deadlines.next is not None
    last = 30_000 + 99_999
    assert deadlines.expired(last - STEP_MS, in_flight) == []
    assert deadlines.expired(last + STEP_MS, in_flight) == [7]


def test_many_events_in_flight_cost_a_few_lookups_each() -> None:
    deadlines, in_flight = Deadlines(), InFlight(range(100_000))
    for first in range(0, 100_000, 10):
        deadlines.add(list(range(first, first + 10)), 30_000 + first, in_flight)
    assert in_flight.looks < 300_000
    assert deadlines.expired(200_000, in_flight) == list(range(100_000))


def test_the_timers_of_pauses_do_not_multiply() -> None:
    core = Core("t")
    session, publisher = core.connect(), core.connect()
    core.type(session, "sub t as=s prefetch=10 tries=50 backoff=1s")
    for _ in range(60):
        core.type(publisher, 'pub t {"id":"e","msg":1}')
        for line in core.receive(session):
            event = json.loads(line)
            core.type(session, f"{'ack' if event.get('try', 1) >= 6 else 'nack'} t @{event['offset']}")
        core.pass_time(2)
    assert len(core.broker._delivery.timers) <= 20


def test_the_timers_of_a_consumer_that_acks_before_the_write_ends_do_not_multiply() -> None:
    core = Core("t")
    session, publisher = core.connect(), core.connect()
    core.type(session, "hello x quiet", "sub t as=s prefetch=500")
    for first in range(0, 200_000, 500):
        core.type(publisher, *['pub t {"id":"e","msg":1}'] * 500)
        session.take_output()
        for command in parse_lines([f"ack t {' '.join(f'@{first + n}' for n in range(500))}".encode()], 1 << 20):
            assert not isinstance(command, Refusal)
            core.broker.execute(session, command, core.now_ms)
        core.broker.sent(session, core.now_ms)
        core.carry_out()
        core.pass_time(0.1)
    assert len(core.broker._delivery.timers) <= 40


def test_events_extended_or_nacked_during_a_mass_timeout_do_not_time_out() -> None:
    core = Core("t")
    session, publisher = core.connect(), core.connect()
    core.type(session, "sub t as=s prefetch=6000 timeout=10s tries=5")
    for _ in range(6):
        core.type(publisher, *['pub t {"id":"e","msg":1}'] * 1000)
    core.receive(session)
    while not core.broker.counts["failed_timeout"]:
        core.now_ms += 100
        core.broker.tick(core.now_ms)
    assert core.broker.counts["failed_timeout"] < 5000
    core.type(session, "extend t @5999", "nack t @5998")
    core.pass_time(1)
    attempts = core.broker.topics["t"].subscriptions["s"].attempts
    assert 5999 not in attempts
    assert [failure.cause for failure in attempts[5998].errors] == ["nack"]
    assert core.broker.counts["failed_timeout"] == 5998
    core.pass_time(10)
    assert 5999 in attempts
