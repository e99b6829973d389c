"""Compare a pattern subscription with a plain model: topics come and go while connections attach, ack, leave and are lost."""

import json
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core import Session
from tests.broker.core.harness import Core

NAMES = [f"o.{word}" for word in ("a", "b", "c", "d")]
Place = tuple[str, int]


class PatternDelivery(RuleBasedStateMachine):
    """The pattern ``o.*`` as ``s``. `place` has the state of each event: waiting, settled, or the session that has it."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core("o.a", "other")
        self.place: dict[Place, str | int] = {}
        self.sessions: dict[int, Session] = {}
        self.prefetch: dict[int, int] = {}
        self.next: dict[str, int] = {"o.a": 0}

    @initialize()
    def make(self) -> None:
        session = self.core.connect()
        assert self.core.type(session, "sub o.* as=s max_wait=0s tries=1000", "unsub o.* as=s") == [
            "+OK sub o.* as=s topics=1 pending=0 prefetch=1",
            "+OK unsub o.*",
        ]
        self.core.disconnect(session)

    def in_flight(self) -> list[Place]:
        return sorted(place for place, where in self.place.items() if isinstance(where, int))

    def take(self, session: Session, lines: Iterable[str]) -> None:
        """Note the events that a session has received, each of which waited before."""
        for line in lines:
            if line.startswith("{"):
                event = json.loads(line)
                place = (event["topic"], event["offset"])
                assert self.place[place] == "waiting", line
                self.place[place] = session.number

    def receive_all(self) -> None:
        for session in self.sessions.values():
            self.take(session, self.core.receive(session))

    @rule(topic=st.sampled_from(NAMES), count=st.integers(1, 3))
    def publish(self, topic: str, count: int) -> None:
        """Publish to a topic, which is created if it is missing."""
        publisher = self.core.connect()
        first = self.next.setdefault(topic, 0)
        for offset in range(first, first + count):
            self.place[topic, offset] = "waiting"
        self.next[topic] += count
        replies = self.core.type(publisher, *(f'pub {topic} {{"id":"e","msg":{n}}}' for n in range(count)))
        assert all(reply.startswith(f"+OK pub {topic}") for reply in replies)
        self.core.disconnect(publisher)
        self.receive_all()

    @precondition(lambda self: len(self.sessions) < 3)
    @rule(prefetch=st.integers(1, 4))
    def attach(self, prefetch: int) -> None:
        session = self.core.connect()
        self.sessions[session.number], self.prefetch[session.number] = session, prefetch
        waiting = sum(where == "waiting" for where in self.place.values())
        reply, *events = self.core.type(session, f"sub o.* as=s prefetch={prefetch}")
        assert reply == f"+OK sub o.* as=s topics={len(self.next)} pending={waiting} prefetch={prefetch}"
        self.take(session, events)

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        topic, offset = data.draw(st.sampled_from(self.in_flight()))
        session = self.sessions[int(self.place[topic, offset])]
        self.place[topic, offset] = "settled"
        reply, *events = self.core.type(session, f"ack {topic} @{offset}")
        assert reply == f"+OK ack {topic} 1"
        self.take(session, events)
        self.receive_all()

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        topic, offset = data.draw(st.sampled_from(self.in_flight()))
        session = self.sessions[int(self.place[topic, offset])]
        self.place[topic, offset] = "waiting"
        reply, *events = self.core.type(session, f"nack {topic} @{offset}")
        assert reply == f"+OK nack {topic} 1"
        self.take(session, events)
        self.receive_all()

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), is_lost=st.booleans())
    def leave(self, data: st.DataObject, is_lost: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.sessions)))
        session = self.sessions.pop(number)
        for place in [place for place, where in self.place.items() if where == number]:
            self.place[place] = "waiting"
        if is_lost:
            self.core.disconnect(session)
        else:
            assert self.core.type(session, "unsub o.*") == ["+OK unsub o.*"]
        self.receive_all()

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if self.next:
            topic = data.draw(st.sampled_from(sorted(self.next)))
            del self.next[topic]
            self.place = {place: where for place, where in self.place.items() if place[0] != topic}
            session = self.core.connect()
            assert self.core.type(session, f"drop {topic}") == [f"+OK drop {topic}"]
            self.core.disconnect(session)
            self.core.pass_time(0.1)
            self.receive_all()

    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        if self.next:
            topic = data.draw(st.sampled_from(sorted(self.next)))
            for place in [place for place in self.place if place[0] == topic]:
                self.place[place] = "waiting"
            session = self.core.connect()
            count = self.next[topic]
            assert self.core.type(session, f"seek {topic} as=s to=earliest") == [
                f"+OK seek {topic} as=s from=0 pending={count}"
            ]
            self.core.disconnect(session)
            self.core.pass_time(0.1)
            self.receive_all()

    @rule(is_folded=st.booleans())
    def restart(self, is_folded: bool) -> None:
        self.core.restart(is_folded=is_folded)
        self.sessions.clear()
        for place in self.in_flight():
            self.place[place] = "waiting"

    @invariant()
    def no_session_has_more_than_its_prefetch(self) -> None:
        for number, prefetch in self.prefetch.items():
            assert sum(where == number for where in self.place.values()) <= prefetch

    @invariant()
    def an_event_waits_only_if_every_session_is_full(self) -> None:
        held = {number: sum(where == number for where in self.place.values()) for number in self.sessions}
        if any(where == "waiting" for where in self.place.values()):
            assert all(held[number] == self.prefetch[number] for number in self.sessions)

    @invariant()
    def the_broker_counts_the_same_events(self) -> None:
        assert not self.core.bugs
        for topic in self.next:
            subscription = self.core.broker.topics[topic].subscriptions["s"]
            of_topic = [where for (name, _), where in self.place.items() if name == topic]
            assert subscription.waiting == of_topic.count("waiting")
            assert subscription.in_flight == sum(isinstance(where, int) for where in of_topic)
        assert "s" not in self.core.broker.topics["other"].subscriptions


TestPatternDelivery = PatternDelivery.TestCase
TestPatternDelivery.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
