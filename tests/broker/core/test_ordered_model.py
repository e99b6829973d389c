"""Random acks, failures, losses, restarts and seeks on an ordered subscription, checked after each step.

For each key, the events in flight are the first of its unsettled events, and they are with one consumer.
"""

import json
import random
from collections import defaultdict

import pytest

from broker.core import Session
from broker.core.topic.ordered_backlog import OrderedBacklog
from broker.core.topic.subscription import Subscription
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import answer

STEPS = 250
PADDING = "x" * 20_000


class Model:
    """An ordered subscription `s` of topic `t`, its consumers, and what they were given."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.core = Core("t")
        self.options = self.rng.choice(("", " backoff=1s", " timeout=3s", " tries=2", " backoff=2s timeout=4s tries=3"))
        self.keys: list[str | None] = []
        self.sessions: list[Session] = []
        self.held: dict[Session, list[int]] = {}
        # By key, the offsets in the order of their first deliveries
        self.first: defaultdict[str, list[int]] = defaultdict(list)
        self.seen: set[int] = set()
        self.attach()

    @property
    def subscription(self) -> Subscription:
        return self.core.broker.topics["t"].subscriptions["s"]

    def step(self) -> None:
        rng = self.rng
        match rng.randrange(20):
            case 0 | 1 | 2 | 3:
                self.publish(rng.randint(1, 8))
            case 4 | 5 | 6 | 7 | 8 if self.sessions:
                self.settle(rng.choice(self.sessions))
            case 9 | 10 | 11 if self.sessions:
                self.nack(rng.choice(self.sessions))
            case 12 if len(self.sessions) < 4:
                self.attach()
            case 13 if self.sessions:
                self.lose(rng.choice(self.sessions))
            case 14 | 15:
                self.core.pass_time(rng.random() * 3)
            case 16 if rng.random() < 0.2:
                self.restart()
            case 17 if rng.random() < 0.2:
                verb = rng.choice(("pause", "resume"))
                self.core.type(self.core.connect(), f"{verb} t as=s")
            case 18:
                self.core.hold_fetches = rng.random() < 0.5
            case 19 if rng.random() < 0.2:
                self.core.type(self.core.connect(), f"purge t before={rng.randint(0, len(self.keys))}")
            case _:
                self.core.carry_out()
        self.collect()
        self.check()

    def attach(self) -> None:
        session = self.core.connect()
        begins = self.rng.choice(("", " begins"))
        prefetch = self.rng.choice((1, 2, 5, 50))
        self.core.type(session, f"hello c{session.number}")
        line = f"sub t as=s prefetch={prefetch} from=earliest ordered=key{self.options}{begins}"
        self.sessions.append(session)
        self.held[session] = []
        self.note(session, self.core.type(session, line))

    def publish(self, count: int) -> None:
        session = self.core.connect()
        lines: list[str] = []
        for _ in range(count):
            key = self.rng.choice((None, "a", "a", "b", "c", "long" * 100))
            self.keys.append(key)
            event = {
                "id": f"e{len(self.keys)}",
                "msg": self.rng.choice((1, PADDING)),
                "priority": self.rng.randrange(3),
            }
            lines.append(f"pub t {json.dumps(event if key is None else event | {'key': key})}")
        self.core.type(session, *lines)
        self.core.disconnect(session)

    def settle(self, session: Session) -> None:
        held = self.held[session]
        some = self.rng.sample(held, self.rng.randint(0, min(5, len(held))))
        if some:
            self.note(session, self.core.type(session, f"ack t {' '.join(f'@{offset}' for offset in some)}"))

    def nack(self, session: Session) -> None:
        if self.held[session]:
            verb = self.rng.choice(("nack", "nack", "begin", "extend"))
            self.note(session, self.core.type(session, f"{verb} t @{self.rng.choice(self.held[session])}"))

    def lose(self, session: Session) -> None:
        self.sessions.remove(session)
        if self.rng.random() < 0.5:
            self.core.type(session, "unsub t as=s")
        self.core.disconnect(session)

    def restart(self) -> None:
        self.core.hold_fetches = False
        self.core.fetches = []
        self.core.restart(is_folded=self.rng.random() < 0.5)
        self.sessions = []
        self.attach()

    def collect(self) -> None:
        for session in self.sessions:
            self.note(session, self.core.receive(session))

    def note(self, session: Session, lines: list[str]) -> None:
        for line in lines:
            if line.startswith("{"):
                event = json.loads(line)
                offset = event["offset"]
                self.held[session].append(offset)
                key = self.keys[offset]
                if key is not None and offset not in self.seen:
                    self.first[key].append(offset)
                self.seen.add(offset)

    def unsettled(self) -> list[int]:
        runs = answer(self.core, self.core.connect(), "unsettled t as=s")["offsets"]
        return [offset for first, last in runs for offset in range(first, last + 1)]

    def check(self) -> None:
        # Finish the reads of lines first, unless they are held, so that the reports below describe one moment.
        self.core.carry_out()
        self.collect()
        assert self.core.bugs == []
        where = {offset: one for one in self.subscription.consumers for offset in one.in_flight}
        waiting: set[str] = set()
        owner: dict[str, object] = {}
        unsettled = self.unsettled()
        for offset in unsettled:
            key = self.keys[offset]
            if key is None:
                continue
            if offset in where:
                assert key not in waiting, f"@{offset} is in flight before an earlier event of {key[:8]}"
                assert owner.setdefault(key, where[offset]) is where[offset], f"{key[:8]} is with two consumers"
            else:
                waiting.add(key)
        for key, offsets in self.first.items():
            assert offsets == sorted(offsets), key[:8]
        assert self.subscription.waiting + self.subscription.in_flight == len(unsettled)
        backlog = self.subscription.backlog
        assert isinstance(backlog, OrderedBacklog)
        assert backlog.keys.keys() <= {hash(key) for key in self.keys if key is not None}

    def drain(self) -> None:
        self.core.hold_fetches = False
        self.core.type(self.core.connect(), "resume t as=s")
        self.attach()
        for _ in range(100):
            self.core.carry_out()
            self.collect()
            for session in self.sessions:
                while held := self.held[session]:
                    self.held[session] = []
                    self.note(session, self.core.type(session, f"ack t {' '.join(f'@{offset}' for offset in held)}"))
            if not self.unsettled():
                break
            self.core.pass_time(5)
        assert self.unsettled() == []
        backlog = self.subscription.backlog
        assert isinstance(backlog, OrderedBacklog)
        assert (backlog.parked, backlog.delayed, backlog.keys) == (0, 0, {}), "settled events leave nothing behind"


@pytest.mark.parametrize("seed", range(60))
def test_events_of_a_key_are_delivered_in_order_by_one_consumer_at_a_time(seed: int) -> None:
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
    model.drain()
