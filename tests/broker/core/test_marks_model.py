"""Random publishes, marks, settings, failed writes and restarts. A model checks the promise of each reply."""

import random
from collections import deque

import pytest

from tests.broker.core.harness import Core
from tweetwire.protocol.replies import receipt

NAMES = ("a", "b", "c")
STEPS = 400


class Model:
    """Publishes with two sessions, and checks each reply against the marks at that moment.

    Always true:

    - a reply `replicated` means that every named mark has passed the event and does not except it;
    - another reply comes only when the time is over, or for an exception;
    - replies come in the order of the publishes.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.core = Core("t")
        self.marks: dict[str, tuple[int, set[int]]] = {}
        self.setting: tuple[tuple[str, ...], int] = ((), 5000)
        self.replicated = self.late = 0
        self.connect()

    def connect(self) -> None:
        self.publishers = [self.core.connect() for _ in range(2)]
        self.bridge = self.core.connect()
        # Each is (marks, time when it is late); after a restart, clients do not wait for old replies.
        self.waiting: list[deque[tuple[tuple[str, ...], int]]] = [deque(), deque()]

    def step(self) -> None:
        kinds = {
            self.publish: 10,
            self.mark: 6,
            self.pass_time: 4,
            self.confirm: 1,
            self.unmark: 0.3,
            self.restart: 0.3,
            self.fail_write: 0.5,
        }
        (kind,) = self.random.choices(list(kinds), list(kinds.values()))
        kind()
        for number, session in enumerate(self.publishers):
            self.check(number, self.core.receive(session))
        self.check_waiting()

    def publish(self) -> None:
        number = self.random.randrange(2)
        for _ in range(self.random.randint(1, 5)):
            after, within = self.setting
            options = ""
            if self.random.random() < 0.3:
                after = tuple(sorted(self.random.sample(NAMES, self.random.randint(0, 2))))
                options = f"after={','.join(after) or 'none'} "
            self.waiting[number].append((after, self.core.now_ms + within))
            received = self.core.type(self.publishers[number], f'pub t {options}{{"id":"x","msg":1}}')
            self.check(number, received)

    def mark(self) -> None:
        name = self.random.choice(NAMES)
        before, excepted = self.marks.get(name, (0, set()))
        visible = self.core.broker.topics["t"].visible
        offset = self.random.randint(max(0, before - 3), visible)
        new = {n for n in range(max(0, offset - 4), offset) if self.random.random() < 0.2}
        words = f" except {' '.join(f'@{n}' for n in new)}" if new else ""
        # Set the model first: replies that the command releases are checked against it.
        if offset >= before:
            self.marks[name] = (offset, excepted | {n for n in new if n >= before})
        (reply,) = self.core.type(self.bridge, f"mark t as={name} @{offset}{words}")
        assert reply == f"+OK mark t {name} @{max(offset, before)}"

    def unmark(self) -> None:
        name = self.random.choice(NAMES)
        self.marks.pop(name, None)
        assert self.core.type(self.bridge, f"unmark t as={name}") == [f"+OK unmark t {name}"]

    def confirm(self) -> None:
        after = tuple(sorted(self.random.sample(NAMES, self.random.randint(0, 2))))
        within = self.random.choice((500, 2000))
        self.setting = (after, within)
        self.core.type(self.bridge, f"confirm t after={','.join(after) or 'none'} within={within}ms")

    def pass_time(self) -> None:
        self.core.pass_time(self.random.choice((0.1, 0.4, 1.0)))

    def fail_write(self) -> None:
        self.core.fail_with = "no room"
        number = self.random.randrange(2)
        self.waiting[number].append((("refused",), 0))
        self.check(number, self.core.type(self.publishers[number], 'pub t {"id":"x","msg":1}'))
        self.core.fail_with = None

    def restart(self) -> None:
        if self.random.random() < 0.5:
            self.core.broker.begin_drain()
            for session in self.publishers:
                self.core.receive(session)
                assert not session.outbox.is_waiting
        self.core.restart(is_folded=self.random.random() < 0.5)
        self.connect()
        marks = self.core.broker.topics["t"].marks.by_name
        assert {name: (mark.offset, set(mark.excepted)) for name, mark in marks.items()} == self.marks

    def check(self, number: int, replies: list[str]) -> None:
        for line in replies:
            if line.startswith("-ERR disk"):
                assert self.waiting[number].popleft()[0] == ("refused",)
                continue
            found = receipt(line.encode())
            for offset in range(found.first, found.last + 1):
                after, late_ms = self.waiting[number].popleft()
                self.check_promise(offset, after, late_ms, found.durability)

    def check_promise(self, offset: int, after: tuple[str, ...], late_ms: int, promise: str) -> None:
        marks = [self.marks.get(name, (0, set())) for name in after]
        is_passed = all(offset < place for place, _ in marks)
        is_excepted = any(offset in excepted for _, excepted in marks)
        if promise == "replicated":
            assert after
            assert is_passed
            assert not is_excepted
            self.replicated += 1
        else:
            assert promise == "synced"
            assert not after or self.core.now_ms >= late_ms or (is_passed and is_excepted)
            self.late += bool(after)

    def check_waiting(self) -> None:
        """No reply waits longer than its time, and none whose marks have passed its event is still the next one."""
        for number, session in enumerate(self.publishers):
            if not self.waiting[number]:
                assert not session.outbox.is_waiting
                continue
            after, late_ms = self.waiting[number][0]
            assert after
            assert self.core.now_ms < late_ms + 200, "ticks and steps of 100 ms"


@pytest.mark.parametrize("seed", range(30))
def test_replies_promise_exactly_what_the_marks_show(seed: int) -> None:
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
    assert not model.core.bugs
    assert model.replicated
    assert model.late
    model.core.pass_time(30)
    for number, session in enumerate(model.publishers):
        model.check(number, model.core.receive(session))
        assert not model.waiting[number]
    assert not model.core.broker._desk.waits._living
