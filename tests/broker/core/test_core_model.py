"""Compare the core with a plain model: after any steps, every event is in exactly one place, and is delivered in order."""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core import Session
from tests.broker.core.harness import Core

TIMEOUT_S, TRIES, BACKOFF_S = 10, 3, 2


class Delivery(RuleBasedStateMachine):
    """One topic, and one durable subscription that up to four connections share. The model has one word for each event."""

    def __init__(self) -> None:
        super().__init__()
        self.place: dict[int, str | int] = {}
        self.failures: dict[int, int] = {}
        self.strikes: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self.priority: dict[int, int] = {}
        self.sessions: dict[int, Session] = {}
        self.prefetch: dict[int, int] = {}
        self.backoff = 0

    @initialize(backoff=st.sampled_from([0, BACKOFF_S]))
    def begin(self, backoff: int) -> None:
        self.core = Core("t")
        self.backoff = backoff
        session = self.core.connect()
        self.core.type(
            session, f"sub t as=s from=earliest timeout={TIMEOUT_S}s tries={TRIES} backoff={backoff}s max_wait=0s"
        )
        self.core.disconnect(session)

    @rule(priorities=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def publish(self, priorities: list[int]) -> None:
        publisher = self.core.connect()
        first = len(self.priority)
        lines = [
            json.dumps({"id": f"e{n}", "priority": p, "msg": n}, separators=(",", ":"))
            for n, p in enumerate(priorities, first)
        ]
        replies = self.core.type(publisher, *(f"pub t {line}" for line in lines))
        last = first + len(priorities) - 1
        assert replies == [f"+OK pub t {first}{'' if first == last else f'-{last}'} synced"]
        for offset, priority in enumerate(priorities, first):
            self.priority[offset] = priority
            self.place[offset] = "waiting"
        self.core.disconnect(publisher)
        self.receive_all(is_ordered=True)

    @precondition(lambda self: len(self.sessions) < 4)
    @rule(prefetch=st.integers(1, 4))
    def subscribe(self, prefetch: int) -> None:
        session = self.core.connect()
        self.sessions[session.number] = session
        self.prefetch[session.number] = prefetch
        reply, *events = self.core.type(session, f"sub t as=s prefetch={prefetch}")
        assert reply.startswith("+OK sub t as=s from=0 pending=")
        self.take(session, events, is_ordered=True)

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data(), by_id=st.booleans())
    def ack(self, data: st.DataObject, by_id: bool) -> None:
        offset = data.draw(st.sampled_from(self.in_flight()))
        session = self.sessions[int(self.place[offset])]
        self.place[offset] = "settled"
        self.failures.pop(offset, None)
        self.strikes.pop(offset, None)
        reply, *events = self.core.type(session, f"ack t {f'e{offset}' if by_id else f'@{offset}'}")
        assert reply == "+OK ack t 1"
        self.take(session, events, is_ordered=True)
        self.receive_all(is_ordered=True)

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.in_flight()))
        session = self.sessions[int(self.place[offset])]
        self.fail(offset)
        reply, *events = self.core.type(session, f'nack t @{offset} "no"')
        assert reply == "+OK nack t 1"
        self.take(session, events, is_ordered=True)
        self.receive_all(is_ordered=True)

    @precondition(lambda self: len(self.sessions) > 1 and self.in_flight())
    @rule(data=st.data())
    def ack_by_another_is_stale(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.in_flight()))
        other = next(s for number, s in self.sessions.items() if number != self.place[offset])
        assert self.core.type(other, f"ack t @{offset}") == [
            "-ERR stale none of these events is in flight on this connection"
        ]

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.sessions)))
        for offset in [o for o, place in self.place.items() if place == number]:
            self.fail(offset)
        self.core.disconnect(self.sessions.pop(number))
        self.receive_all(is_ordered=True)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), is_named=st.booleans())
    def leave(self, data: st.DataObject, is_named: bool) -> None:
        """When a consumer leaves, its events in flight wait again, without a failed try."""
        number = data.draw(st.sampled_from(sorted(self.sessions)))
        for offset in [o for o, place in self.place.items() if place == number]:
            self.place[offset] = "waiting"
        assert self.core.type(self.sessions.pop(number), f"unsub t{' as=s' if is_named else ''}") == ["+OK unsub t"]
        self.receive_all(is_ordered=True)

    @rule()
    def time_out(self) -> None:
        """All events in flight time out. An event that has a pause is delivered again after it."""
        failed_at = self.core.now_ms + TIMEOUT_S * 1000
        for offset in self.in_flight():
            self.fail(offset, failed_at)
        self.core.pass_time(TIMEOUT_S + 0.2)
        for offset in [o for o, place in self.place.items() if place == "delayed"]:
            if self.due[offset] <= self.core.now_ms:
                self.place[offset] = "waiting"
        self.receive_all(is_ordered=False)

    @precondition(lambda self: "dead" in self.place.values())
    @rule()
    def redrive(self) -> None:
        session = self.core.connect()
        dead = [offset for offset, place in self.place.items() if place == "dead"]
        for offset in dead:
            self.place[offset] = "waiting"
            self.strikes[offset] = 0
        assert self.core.type(session, "redrive t as=s all") == [f"+OK redrive t {len(dead)}"]
        self.core.disconnect(session)
        self.receive_all(is_ordered=True)

    @rule(is_folded=st.booleans())
    def restart(self, is_folded: bool) -> None:
        for offset, place in self.place.items():
            if isinstance(place, int) or place == "delayed":
                self.place[offset] = "waiting"
        self.sessions.clear()
        self.core.restart(is_folded=is_folded)

    @invariant()
    def every_event_is_in_one_place(self) -> None:
        if not hasattr(self, "core"):
            return
        subscription = self.core.broker.topics["t"].subscriptions["s"]
        owners = [offset for consumer in subscription.consumers for offset in consumer.in_flight]
        assert sorted(owners) == sorted(self.in_flight())
        assert len(set(owners)) == len(owners)
        places = list(self.place.values())
        assert subscription.waiting == places.count("waiting") + places.count("delayed")
        assert sorted(subscription.dead) == [offset for offset, place in self.place.items() if place == "dead"]
        for consumer in subscription.consumers:
            assert len(consumer.in_flight) <= consumer.prefetch

    @invariant()
    def nobody_waits_beside_a_free_consumer(self) -> None:
        if "waiting" in self.place.values():
            for number in self.sessions:
                assert sum(place == number for place in self.place.values()) == self.prefetch[number]

    def in_flight(self) -> list[int]:
        return sorted(offset for offset, place in self.place.items() if isinstance(place, int))

    def fail(self, offset: int, at_ms: int | None = None) -> None:
        self.failures[offset] = self.failures.get(offset, 0) + 1
        self.strikes[offset] = self.strikes.get(offset, 0) + 1
        if self.strikes[offset] >= TRIES:
            self.place[offset] = "dead"
        else:
            self.place[offset] = "delayed" if self.backoff else "waiting"
            pause_ms = self.backoff * 1000 * 2 ** (self.failures[offset] - 1)
            self.due[offset] = (at_ms or self.core.now_ms) + pause_ms

    def receive_all(self, *, is_ordered: bool) -> None:
        # If several consumers are free, any of them may get the next event, so events may arrive in any order across consumers.
        events: list[tuple[Session, str]] = []
        for session in self.sessions.values():
            events += [(session, line) for line in self.core.receive(session)]
        if len(self.sessions) == 1:
            for session, line in events:
                self.take(session, [line], is_ordered=is_ordered)
        else:
            for session, line in events:
                self.take(session, [line], is_ordered=False)

    def take(self, session: Session, lines: list[str], *, is_ordered: bool) -> None:
        for line in lines:
            event = json.loads(line)
            offset = event["offset"]
            assert self.place[offset] == "waiting", f"{offset} was {self.place[offset]}"
            if is_ordered and len(self.sessions) == 1:
                waiting = [o for o, place in self.place.items() if place == "waiting"]
                assert offset == min(waiting, key=lambda o: (-self.priority[o], o))
            self.place[offset] = session.number


DeliveryTest = Delivery.TestCase
DeliveryTest.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
