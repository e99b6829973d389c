"""Compare purges, drops, seeks, discards and pauses, in any order and with restarts, with a plain model of one topic."""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.core import Session
from tests.broker.core.harness import Core

TRIES = 2
PREFETCH = 1000


class Administration(RuleBasedStateMachine):
    """One topic, and one durable subscription with at most one consumer. The model has one word for each event.

    A purged event that returns from a consumer waits as a *ghost* until the next delivery finds that it is gone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.core = Core("t")
        self.first = self.next = 0
        self.place: dict[int, str] | None = None
        self.failed: set[int] = set()
        self.consumer: Session | None = None
        self.is_paused = False

    def ask(self, *lines: str) -> list[str]:
        session = self.core.connect()
        replies = self.core.type(session, *lines)
        self.core.disconnect(session)
        return replies

    def offset(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, self.next + 1))

    # Events

    @rule(priorities=st.lists(st.integers(0, 2), min_size=1, max_size=4))
    def publish(self, priorities: list[int]) -> None:
        lines = [json.dumps({"id": "x", "priority": one, "msg": 1}) for one in priorities]
        assert all(reply.startswith("+OK pub") for reply in self.ask(*(f"pub t {line}" for line in lines)))
        for offset in range(self.next, self.next + len(priorities)):
            if self.place is not None:
                self.place[offset] = "waiting"
        self.next += len(priorities)
        self.receive()

    @precondition(lambda self: self.consumer is None)
    @rule()
    def subscribe(self) -> None:
        if self.place is None:
            self.place = dict.fromkeys(range(self.first, self.next), "waiting")
        self.consumer = self.core.connect()
        lines = self.core.type(self.consumer, f"sub t as=s from=earliest prefetch={PREFETCH} tries={TRIES}")
        assert lines[0].startswith("+OK sub t as=s")
        self.take(lines[1:])

    @precondition(lambda self: self.consumer is not None)
    @rule()
    def leave(self) -> None:
        assert self.consumer is not None
        self.core.type(self.consumer, "unsub t as=s")
        self.consumer = None
        for offset in self.those("in flight"):
            self.let_wait(offset)

    @precondition(lambda self: self.those("in flight"))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        assert self.place is not None
        assert self.consumer is not None
        offset = data.draw(st.sampled_from(self.those("in flight")))
        assert self.core.type(self.consumer, f"ack t @{offset}")[0] == "+OK ack t 1"
        self.place[offset] = "settled"
        self.failed.discard(offset)

    @precondition(lambda self: self.those("in flight"))
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        assert self.place is not None
        assert self.consumer is not None
        offset = data.draw(st.sampled_from(self.those("in flight")))
        lines = self.core.type(self.consumer, f"nack t @{offset}")
        assert lines[0] == "+OK nack t 1"
        if offset in self.failed:
            self.place[offset] = "dead"
        else:
            self.failed.add(offset)
            self.let_wait(offset)
        self.take(lines[1:])

    @precondition(lambda self: self.those("in flight"))
    @rule(data=st.data())
    def ack_of_an_event_elsewhere_is_stale(self, data: st.DataObject) -> None:
        assert self.consumer is not None
        offset = data.draw(st.integers(0, self.next))
        if offset not in self.those("in flight"):
            assert self.core.type(self.consumer, f"ack t @{offset}")[0].startswith("-ERR stale")

    # Administration

    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        place = self.offset(data)
        self.first = max(self.first, min(place, self.next))
        assert self.ask(f"purge t before={place}") == [f"+OK purge t {self.first}"]
        self.pass_over()

    @rule()
    def drop(self) -> None:
        assert self.ask("drop t", "create t") == ["+OK drop t", "+OK create t new"]
        if self.consumer is not None:
            lines = self.core.receive(self.consumer)
            assert [line.split()[:2] for line in lines] == [["!ended", "t"]]
        self.first = self.next = 0
        self.place, self.consumer, self.is_paused = None, None, False
        self.failed.clear()

    @precondition(lambda self: self.place is not None)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        start = min(max(self.offset(data), self.first), self.next)
        self.place = {at: "waiting" if at >= start else "settled" for at in range(self.next)}
        self.failed.clear()
        assert self.ask(f"seek t as=s to={start}") == [f"+OK seek t as=s from={start} pending={self.next - start}"]
        self.receive()

    @precondition(lambda self: self.place is not None)
    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        verb = "pause" if is_paused else "resume"
        self.is_paused = is_paused
        assert self.ask(f"{verb} t as=s") == [f"+OK {verb} t as=s"]
        self.receive()

    @precondition(lambda self: self.those("dead"))
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        assert self.place is not None
        some = data.draw(st.lists(st.sampled_from(self.those("dead")), min_size=1, unique=True))
        refs = " ".join(f"@{offset}" for offset in some)
        assert self.ask(f"discard t as=s {refs}") == [f"+OK discard t {len(some)}"]
        for offset in some:
            self.place[offset] = "settled"
            self.failed.discard(offset)

    @precondition(lambda self: self.those("dead"))
    @rule()
    def redrive(self) -> None:
        assert self.ask("redrive t as=s all") == [f"+OK redrive t {len(self.those('dead'))}"]
        for offset in self.those("dead"):
            self.let_wait(offset)
            self.failed.discard(offset)
        self.receive()

    @rule(is_folded=st.booleans())
    def restart(self, is_folded: bool) -> None:
        self.core.restart(is_folded=is_folded)
        self.consumer = None
        for offset in self.those("in flight"):
            self.let_wait(offset)
        self.pass_over()

    # The model

    def those(self, place: str) -> list[int]:
        return [offset for offset, one in (self.place or {}).items() if one == place]

    def let_wait(self, offset: int) -> None:
        assert self.place is not None
        self.place[offset] = "waiting" if offset >= self.first else "ghost"

    def pass_over(self) -> None:
        """Settle the events below the first offset that wait or are dead."""
        for offset, place in (self.place or {}).items():
            if offset < self.first and place != "in flight":
                assert self.place is not None
                self.place[offset] = "settled"
                self.failed.discard(offset)

    def receive(self) -> None:
        if self.consumer is not None:
            self.take(self.core.receive(self.consumer))

    def take(self, lines: list[str]) -> None:
        for line in lines:
            offset = json.loads(line)["offset"]
            assert self.place is not None
            assert self.place[offset] == "waiting"
            assert offset >= self.first
            assert not self.is_paused
            self.place[offset] = "in flight"
        if self.consumer is not None and not self.is_paused:
            for offset in self.those("ghost"):
                assert self.place is not None
                self.place[offset] = "settled"
                self.failed.discard(offset)

    @invariant()
    def the_log_is_what_was_not_purged(self) -> None:
        head, *lines = self.ask("read t earliest")
        assert head == f"+OK read t {self.next - self.first} next={self.next}"
        assert [json.loads(line)["offset"] for line in lines] == list(range(self.first, self.next))

    @invariant()
    def every_event_is_in_one_place(self) -> None:
        subscriptions = self.core.broker.topics["t"].subscriptions
        assert (self.place is not None) == ("s" in subscriptions)
        if self.place is None:
            return
        (reply,) = self.ask("unsettled t as=s")
        runs = json.loads(reply.split(" ", 3)[3])["offsets"]
        unsettled = [offset for first, last in runs for offset in range(first, last + 1)]
        assert unsettled == sorted(self.those("waiting") + self.those("in flight") + self.those("ghost"))
        assert sorted(subscriptions["s"].offsets_in_flight()) == sorted(self.those("in flight"))
        assert sorted(subscriptions["s"].dead) == sorted(self.those("dead"))
        assert subscriptions["s"].is_paused == self.is_paused
        attempts = subscriptions["s"].attempts
        assert self.failed == {offset for offset, one in attempts.items() if one.strikes}

    @invariant()
    def events_wait_only_without_a_consumer_or_in_a_pause(self) -> None:
        if self.consumer is not None and not self.is_paused:
            assert not self.those("waiting")

    @invariant()
    def no_bug_was_found(self) -> None:
        assert self.core.bugs == []


AdministrationTest = Administration.TestCase
AdministrationTest.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
