"""Compare the broker's half of the handshakes with a plain model: any steps, in any order, repeated, across restarts."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core import Session
from tests.broker.core.harness import Core

IDS = [f"m{number}" for number in range(6)]


class Handshakes(RuleBasedStateMachine):
    """One client publishes, another one consumes. At any time, each may lose its connection, and the broker may be killed.

    For each message, the model has two words: its state for the publisher and its state for the consumer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.published: dict[str, str] = {}
        self.offsets: dict[str, int] = {}
        self.consumed: dict[int, str] = {}

    @initialize()
    def begin(self) -> None:
        self.core = Core("t")
        self.connect_publisher()
        self.consumer = self.connect("consumer")
        self.subscribe()

    def connect(self, name: str) -> Session:
        session = self.core.connect()
        assert self.core.type(session, f"hello {name}") == [f"+OK hello {name}"]
        return session

    def connect_publisher(self) -> None:
        self.publisher = self.connect("publisher")

    def subscribe(self) -> None:
        self.take(self.core.type(self.consumer, "sub t as=s from=earliest prefetch=3 qos=2 tries=1000000"))

    def take(self, lines: list[str]) -> list[str]:
        """Record the delivered events, and check that the client has none of them yet. Return the replies."""
        replies = []
        for line in lines:
            if not line.startswith("{"):
                replies.append(line)
                continue
            event: dict[str, Any] = json.loads(line)
            assert self.consumed.get(event["offset"]) in {None, "in flight", "lost"}, line
            self.consumed[event["offset"]] = "in flight"
        return replies

    @rule(id_=st.sampled_from(IDS), body=st.integers(0, 2))
    def pub2(self, id_: str, body: int) -> None:
        event = json.dumps({"id": id_, "msg": body})
        assert self.core.type(self.publisher, f"pub2 t {event}") == [f"+REC t {id_}"]
        self.published.setdefault(id_, "held")

    @rule(id_=st.sampled_from(IDS), is_failing=st.booleans())
    def pubrel(self, id_: str, is_failing: bool) -> None:
        self.core.fail_with = "No space left on device" if is_failing else None
        (reply,) = self.core.type(self.publisher, f"pubrel t {id_}")
        self.core.fail_with = None
        if id_ not in self.published:
            assert reply.startswith("-ERR no_event")
        elif is_failing and self.published[id_] == "held":
            assert reply.startswith("-ERR disk")
        else:
            self.published[id_] = "stored"
            offset = self.offsets.setdefault(id_, len(self.offsets))
            assert reply == f"+COMP t {id_} {offset} synced"
        self.take(self.core.receive(self.consumer))

    @precondition(lambda self: "held" in self.published.values())
    @rule(data=st.data(), is_written=st.booleans(), is_folded=st.booleans())
    def die_while_storing(self, data: st.DataObject, is_written: bool, is_folded: bool) -> None:
        """Kill the broker between a release and its answer. The event may be in the log or not."""
        id_ = data.draw(st.sampled_from(sorted(key for key, place in self.published.items() if place == "held")))
        self.core.hold = True
        assert self.core.type(self.publisher, f"pubrel t {id_}") == []
        topic = self.core.broker.topics["t"]
        if is_written:
            topic.log.append(topic.begin_write())
            self.published[id_] = "stored"
            self.offsets[id_] = len(self.offsets)
        self.core.hold = False
        self.restart(is_folded)

    @precondition(lambda self: self.offsets)
    @rule(data=st.data())
    def pubrec(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.offsets) - 1))
        place = self.consumed.get(offset)
        (reply,) = self.take(self.core.type(self.consumer, f"pubrec t @{offset}"))
        if place in {None, "lost"}:
            assert reply.startswith("-ERR stale")
        else:
            assert reply == f"+REL t @{offset}"
            self.consumed[offset] = "taken" if place == "in flight" else str(place)

    @precondition(lambda self: self.offsets)
    @rule(data=st.data())
    def pubcomp(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.offsets) - 1))
        place = self.consumed.get(offset)
        if place in {"taken", "done"}:
            self.consumed[offset] = "done"
        (reply,) = self.take(self.core.type(self.consumer, f"pubcomp t @{offset}"))
        assert reply == f"+OK comp t @{offset}" if place in {"taken", "done"} else reply.startswith("-ERR stale")

    @rule(is_publisher=st.booleans())
    def reconnect(self, is_publisher: bool) -> None:
        if is_publisher:
            self.core.disconnect(self.publisher)
            self.connect_publisher()
            return
        self.lose_in_flight()
        self.core.disconnect(self.consumer)
        self.consumer = self.connect("consumer")
        self.subscribe()

    @rule(is_folded=st.booleans())
    def restart(self, is_folded: bool) -> None:
        self.lose_in_flight()
        self.core.restart(is_folded=is_folded)
        self.connect_publisher()
        self.consumer = self.connect("consumer")
        self.subscribe()

    def lose_in_flight(self) -> None:
        self.consumed |= {offset: "lost" for offset, place in self.consumed.items() if place == "in flight"}

    @invariant()
    def each_message_is_stored_once(self) -> None:
        if hasattr(self, "core"):
            lines = self.core.logs.by_topic["t"].read(0, 100, 1 << 20)[0]
            assert {json.loads(line)["id"]: json.loads(line)["offset"] for line in lines} == self.offsets
            assert len(lines) == len(self.offsets)

    @invariant()
    def the_window_is_as_full_as_it_can_be(self) -> None:
        if hasattr(self, "core"):
            places = list(self.consumed.values())
            with_the_client = places.count("in flight") + places.count("taken")
            waiting = len(self.offsets) - with_the_client - places.count("done")
            assert with_the_client == 3 or waiting == 0

    @invariant()
    def the_report_counts_what_is_open(self) -> None:
        if hasattr(self, "core"):
            held, taken = list(self.published.values()).count("held"), list(self.consumed.values()).count("taken")
            assert self.core.broker._verbs.exactly_once.report() == {"held": held, "storing": 0, "taken": taken}


HandshakesTest = Handshakes.TestCase
HandshakesTest.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
