"""Compare delayed and expiring events with a plain model: none is lost, early, late or delivered after it expired."""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core import Session
from tests.broker.core.harness import Core

TRIES, BACKOFF_S = 2, 3
SECONDS = st.none() | st.integers(1, 20)


class Timed(RuleBasedStateMachine):
    """One topic and one durable subscription with up to two connections. The model has one word for each event."""

    def __init__(self) -> None:
        super().__init__()
        self.place: dict[int, str | int] = {}
        self.priority: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self.expires: dict[int, int] = {}
        self.paused_until: dict[int, int] = {}
        self.failures: dict[int, int] = {}
        self.sessions: dict[int, Session] = {}
        self.shift_ms = 0
        self.earliest = 0

    @property
    def date_ms(self) -> int:
        return self.core.now_ms + self.shift_ms

    @initialize(backoff=st.sampled_from([0, BACKOFF_S]))
    def begin(self, backoff: int) -> None:
        self.core = Core("t", now_ms=1_000_000_000)
        self.backoff = backoff
        session = self.core.connect()
        self.core.type(session, f"sub t as=s from=earliest timeout=1h tries={TRIES} backoff={backoff}s max_wait=0s")
        self.core.disconnect(session)

    @rule(
        events=st.lists(st.tuples(st.integers(0, 2), SECONDS, SECONDS), min_size=1, max_size=6),
        are_members=st.booleans(),
    )
    def publish(self, events: list[tuple[int, int | None, int | None]], are_members: bool) -> None:
        publisher = self.core.connect()
        lines: list[str] = []
        for priority, delay, more in events:
            offset = len(self.place)
            expires = None if more is None else more + (delay or 0)
            timing = {"delay": delay, "expires": expires}
            given = {name: f"{seconds}s" for name, seconds in timing.items() if seconds is not None}
            event = {"id": f"e{offset}", "priority": priority, "msg": offset, **(given if are_members else {})}
            options = "" if are_members else "".join(f"{name}={text} " for name, text in given.items())
            lines.append(f"pub t {options}{json.dumps(event, separators=(',', ':'))}")
            self.priority[offset] = priority
            self.place[offset] = "waiting" if delay is None else "scheduled"
            if delay is not None:
                self.due[offset] = self.date_ms + delay * 1000
            if expires is not None:
                self.expires[offset] = self.date_ms + expires * 1000
        replies = self.core.type(publisher, *lines)
        assert all(reply.startswith("+OK pub t ") for reply in replies), replies
        self.core.disconnect(publisher)
        self.receive_all()

    @precondition(lambda self: len(self.sessions) < 2)
    @rule(prefetch=st.integers(1, 5))
    def subscribe(self, prefetch: int) -> None:
        session = self.core.connect()
        self.sessions[session.number] = session
        reply, *events = self.core.type(session, f"sub t as=s prefetch={prefetch}")
        assert reply.startswith("+OK sub t as=s ")
        self.take(session, events)

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data(), is_ack=st.booleans())
    def answer(self, data: st.DataObject, is_ack: bool) -> None:
        offset = data.draw(st.sampled_from(self.in_flight()))
        session = self.sessions[int(self.place[offset])]
        if is_ack:
            self.place[offset] = "settled"
        else:
            self.fail(offset)
        _, *events = self.core.type(session, f"{'ack' if is_ack else 'nack'} t @{offset}")
        self.take(session, events)
        self.receive_all()

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.sessions)))
        for offset in [offset for offset, place in self.place.items() if place == number]:
            self.place[offset] = "waiting"
        self.core.type(self.sessions.pop(number), "unsub t")
        self.receive_all()

    @rule(seconds=st.sampled_from([0.1, 1, 5, 30]))
    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.core.pass_time(0.1)
            self.end_waits()
            self.receive_all()

    @rule(seconds=st.sampled_from([-3600, -10, -1, 1, 10, 3600]))
    def set_clock(self, seconds: int) -> None:
        self.shift_ms += seconds * 1000
        self.core.broker.set_date_shift(self.shift_ms)
        # If the clock was set back, an event that was due and that no consumer has asked for is scheduled again.
        for offset, due_ms, _ in self.core.broker.topics["t"].schedule.events():
            if due_ms > self.date_ms and self.place[offset] == "waiting":
                self.place[offset] = "scheduled"
                self.released = self.released - {offset}
        self.pass_time(0.1)

    @precondition(lambda self: "dead" in self.place.values())
    @rule()
    def redrive(self) -> None:
        session = self.core.connect()
        for offset in [offset for offset, place in self.place.items() if place == "dead"]:
            self.place[offset] = "waiting"
            self.failures[offset] = 0
        self.core.type(session, "redrive t as=s all")
        self.core.disconnect(session)
        self.receive_all()

    @precondition(lambda self: self.place)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(self.earliest, len(self.place)))
        self.failures.clear()
        for offset in self.place:
            is_due = self.due.get(offset, 0) <= self.date_ms or offset in self.released
            self.place[offset] = ("waiting" if is_due else "scheduled") if offset >= to else "settled"
        session = self.core.connect()
        (reply,) = self.core.type(session, f"seek t as=s to={to}")
        assert reply.startswith(f"+OK seek t as=s from={to} "), reply
        self.core.disconnect(session)
        self.receive_all()

    @precondition(lambda self: len(self.place) > 3)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        self.earliest = data.draw(st.integers(self.earliest, len(self.place)))
        for offset in range(self.earliest):
            if not isinstance(self.place[offset], int):
                self.place[offset] = "settled"
        session = self.core.connect()
        assert self.core.type(session, f"purge t before={self.earliest}") == [f"+OK purge t {self.earliest}"]
        self.core.disconnect(session)
        self.receive_all()

    @rule(is_folded=st.booleans(), seconds_back=st.sampled_from([0, 0, 10, 3600]))
    def restart(self, is_folded: bool, seconds_back: int) -> None:
        """A new process begins with the system's clock, which may have been set back."""
        self.core.now_ms = self.date_ms - seconds_back * 1000
        self.shift_ms = 0
        for offset, place in self.place.items():
            if isinstance(place, int) or place == "paused":
                self.place[offset] = "waiting" if offset >= self.earliest else "settled"
        self.sessions.clear()
        self.core.restart(is_folded=is_folded)
        # An event that no subscription has had waits for its due time again if the clock was set back.
        scheduled = {offset for offset, _, _ in self.core.broker.topics["t"].schedule.events()}
        for offset in scheduled:
            assert self.place[offset] in {"scheduled", "waiting", "settled"}
            assert self.place[offset] != "waiting" or not self.failures.get(offset)
            if self.place[offset] == "waiting" and self.due[offset] > self.date_ms:
                self.place[offset] = "scheduled"
        for offset, place in self.place.items():
            if place == "scheduled" and (self.due[offset] <= self.date_ms or offset not in scheduled):
                assert self.due[offset] <= self.date_ms
                self.place[offset] = "waiting"
        self.released = {
            offset for offset, due_ms in self.due.items() if due_ms <= self.date_ms or offset not in scheduled
        }

    @invariant()
    def what_waits_is_what_the_model_says(self) -> None:
        if not hasattr(self, "core"):
            return
        assert not self.core.bugs, self.core.bugs
        subscription = self.core.broker.topics["t"].subscriptions["s"]
        session = self.core.connect()
        (reply,) = self.core.type(session, "unsettled t as=s")
        runs = json.loads(reply.partition("unsettled t ")[2])["offsets"]
        unsettled = {offset for first, last in runs for offset in range(first, last + 1)}
        for offset in [o for o, place in self.place.items() if place in {"waiting", "paused"} and o not in unsettled]:
            # An event that was in flight during a purge is settled when it would be delivered again.
            assert self.is_expired(offset) or offset < self.earliest, f"{offset} is lost"
            self.place[offset] = "settled"
        open_ = {offset for offset, place in self.place.items() if place not in {"settled", "dead"}}
        assert unsettled == open_
        for consumer in subscription.consumers:
            assert consumer.room <= 0 or "waiting" not in self.place.values()
        assert subscription.waiting == len(open_) - len(self.in_flight())
        assert subscription.lowest_unsettled(len(self.place)) == min(
            (offset for offset, place in self.place.items() if place != "settled"), default=len(self.place)
        )
        for offset in [offset for offset, place in self.place.items() if place == "scheduled"][:2]:
            (reply,) = self.core.type(session, f"explain t @{offset} as=s")
            assert f'"state":"delayed","until":{self.due[offset]}' in reply
        (reply,) = self.core.type(session, "backlog t as=s")
        waiting = json.loads(reply.partition("backlog t ")[2])["by_priority"]
        assert sum(waiting.values()) == subscription.waiting
        self.core.disconnect(session)

    def teardown(self) -> None:
        """A new subscription gets each event that is due and has not expired."""
        if not hasattr(self, "core"):
            return
        self.core.pass_time(0.1)
        self.end_waits()
        expected = {
            offset
            for offset in range(self.earliest, len(self.place))
            if not self.is_expired(offset) and (offset in self.released or offset not in self.due)
        }
        session = self.core.connect()
        _, *events = self.core.type(session, "sub t as=new from=earliest prefetch=1000")
        assert {json.loads(event)["offset"] for event in events} == expected

    released: set[int] = set()  # noqa: RUF012 — replaced, never changed

    def in_flight(self) -> list[int]:
        return sorted(offset for offset, place in self.place.items() if isinstance(place, int))

    def is_expired(self, offset: int) -> bool:
        return offset in self.expires and self.expires[offset] <= self.date_ms

    def end_waits(self) -> None:
        due = {offset for offset, due_ms in self.due.items() if due_ms <= self.date_ms}
        self.released = self.released | due
        for offset, place in self.place.items():
            is_over = self.paused_until.get(offset, 0) <= self.core.now_ms if place == "paused" else offset in due
            if place in {"scheduled", "paused"} and is_over:
                self.place[offset] = "waiting"

    def fail(self, offset: int) -> None:
        self.failures[offset] = self.failures.get(offset, 0) + 1
        if self.failures[offset] >= TRIES:
            self.place[offset] = "dead"
        else:
            self.place[offset] = "paused" if self.backoff else "waiting"
            # An event that was redriven has failed before, so its pause may be longer.
            self.paused_until[offset] = self.core.now_ms + self.backoff * 1000

    def receive_all(self) -> None:
        for session in self.sessions.values():
            self.take(session, self.core.receive(session))

    def take(self, session: Session, lines: list[str]) -> None:
        for line in lines:
            offset = json.loads(line)["offset"]
            assert self.place[offset] == "waiting", f"{offset} was {self.place[offset]}"
            assert offset >= self.earliest
            assert not self.is_expired(offset), f"{offset} has expired"
            self.place[offset] = session.number


TimedTest = Timed.TestCase
TimedTest.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
