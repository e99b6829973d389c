"""Each call writes one line, and each reply goes to its command, however bytes are split and whenever a connection is lost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweetwire import Event, ProtocolError, Refusal, SubscriptionEnded
from tweetwire.client.engine import ClientEngine, PublishWindow, SubscriptionState
from tweetwire.client.engine.commands import (
    AckCommand,
    Command,
    ConnectionCommand,
    LoginPostponed,
    ReadCommand,
    SubscribeCommand,
)
from tweetwire.client.engine.pauses import FIRST_S, MAX_S, SETTLED_S, ReconnectPauses
from tweetwire.client.engine.publishes import PublishCommand
from tweetwire.client.engine.received_lines import ReceivedLines
from tweetwire.protocol.requests import SubscribeRequest

HELLO = b"hello ann\n"
GREETING = b"+OK tweetwire broker test, type help\n+OK hello ann\n"
LINE_BYTES_MAX = 1000


def event_line(offset: int, topic: str = "t") -> bytes:
    return b'{"topic":"%b","offset":%d,"timestamp":1,"id":"%d","priority":0,"msg":1}\n' % (
        topic.encode(),
        offset,
        offset,
    )


class ScriptedPeer:
    """Answers lines like a broker: it stores each publish, and merges consecutive confirmations of a topic into one line."""

    def __init__(self) -> None:
        self.stored = 0
        self._unconfirmed: list[int] = []
        self._said: list[bytes] = []

    def answer(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines that answer `lines`."""
        self._said = []
        for line in lines:
            if line.startswith(b"pub "):
                self._unconfirmed.append(self.stored)
                self.stored += 1
            else:
                self._confirm()
                self._said += self._answer(line)
        self._confirm()
        return self._said

    def _answer(self, line: bytes) -> list[bytes]:
        words = line.split()
        if words[0] == b"hello":
            return GREETING.splitlines(keepends=True)
        if words[0] == b"read":
            return [b"+OK read t 2 next=2\n", event_line(0), event_line(1)]
        if words[0] == b"nonsense":
            return [b"-ERR unknown_command %b\n" % words[1]]
        return [b"+OK last t %b null\n" % words[2]]

    def _confirm(self) -> None:
        if self._unconfirmed:
            self._said.append(b"+OK pub t %d-%d memory\n" % (self._unconfirmed[0], self._unconfirmed[-1]))
            self._unconfirmed = []


@dataclass
class Asked:
    """The commands that a test has sent to an engine, and the end that each must have."""

    engine: ClientEngine
    window: PublishWindow = field(default_factory=lambda: PublishWindow("t"))
    ends: list[tuple[Command, bytes]] = field(default_factory=list)

    def last(self, number: int) -> None:
        """Ask for the position of a producer."""
        command = self.engine.send(Command(b"last t p%d\n" % number))
        self.ends.append((command, b"+OK last t p%d null" % number))

    def nonsense(self, number: int) -> None:
        """Send an unknown command, which is refused."""
        command = self.engine.send(Command(b"nonsense n%d\n" % number))
        self.ends.append((command, b"-n%d" % number))

    def read(self, number: int) -> None:
        """Read two events."""
        command = self.engine.send(ReadCommand(b"read t %d\n" % number, 2, LINE_BYTES_MAX))
        self.ends.append((command, b"+OK read t 2 next=2"))

    def publish(self, number: int) -> None:
        """Publish one event, and wait for it."""
        self.ends.append((self.engine.send(PublishCommand(b'pub t {"id":"%d"}\n' % number, "t")), b""))

    def pipeline(self, number: int) -> None:
        """Publish one event without waiting for its confirmation."""
        self.engine.send_publishes(self.window, self.window._given_lines([Event(id=str(number), msg=1)]))

    def check(self) -> None:
        """Check that each command ended with its own reply or error."""
        for command, end in self.ends:
            assert command.is_done
            if end.startswith(b"-"):
                with pytest.raises(Refusal, match=end[1:].decode()):
                    command.outcome()
            else:
                assert command.outcome() == end
            if isinstance(command, ReadCommand):
                assert command.lines == [event_line(0)[:-1], event_line(1)[:-1]]
        assert self.window.unconfirmed == 0
        assert not self.engine.is_waiting


KINDS: list[Callable[[Asked, int], None]] = [Asked.last, Asked.nonsense, Asked.read, Asked.publish, Asked.pipeline]


def new_engine() -> ClientEngine:
    return ClientEngine(HELLO, LINE_BYTES_MAX)


def in_pieces(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Split bytes into pieces of these sizes. The last size is used for the rest."""
    pieces, at, rest = [], 0, list(sizes) or [len(data) or 1]
    while at < len(data):
        size = rest.pop(0) if len(rest) > 1 else rest[0]
        pieces.append(data[at : at + size])
        at += size
    return pieces


@given(
    kinds=st.lists(st.sampled_from(KINDS), max_size=20),
    before=st.integers(0, 20),
    sizes=st.one_of(st.just([1]), st.just([]), st.lists(st.integers(1, 60), min_size=1)),
    losses=st.lists(st.floats(0, 1), max_size=3),
)
def test_one_call_writes_one_line_and_each_reply_goes_to_its_command(
    kinds: list[Callable[[Asked, int], None]], before: int, sizes: list[int], losses: list[float]
) -> None:
    engine, peer = new_engine(), ScriptedPeer()
    asked = Asked(engine)
    for number, ask in enumerate(kinds[:before]):
        ask(asked, number)
    assert engine.take_output() == b"", "without a connection nothing is written"
    engine.begin_connection()
    heard = engine.take_output().splitlines(keepends=True)
    assert len(heard) == len(kinds[:before]) + 1
    for number, ask in enumerate(kinds[before:], before):
        ask(asked, number)
        written = engine.take_output()
        assert written.endswith(b"\n")
        assert written.count(b"\n") == 1
        heard.append(written)
    for share in losses:
        said = b"".join(peer.answer(heard))
        for piece in in_pieces(said[: int(len(said) * share)], sizes):
            engine.receive(piece)
        engine.end_connection()
        engine.begin_connection()
        heard = engine.take_output().splitlines(keepends=True)
    for piece in in_pieces(b"".join(peer.answer(heard)), sizes):
        assert engine.receive(piece) == []
    asked.check()
    assert engine.connects == len(losses) + 1


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20),
    st.lists(st.integers(1, 40)),
)
def test_lines_do_not_depend_on_how_their_bytes_were_cut(lines: list[bytes], sizes: list[int]) -> None:
    received = ReceivedLines(LINE_BYTES_MAX)
    data = b"".join(line + b"\n" for line in lines) + b"rest"
    found = [line for piece in in_pieces(data, sizes) for line in received.feed(piece)]
    assert found == lines


def test_a_line_without_an_end_is_refused_once_it_is_too_long_and_those_before_it_are_taken() -> None:
    engine = new_engine()
    engine.begin_connection()
    ping = engine.send(Command(b"ping\n"))
    with pytest.raises(ProtocolError, match="longer than 1000 bytes"):
        engine.receive(GREETING + b"+PONG\n" + b"x" * (LINE_BYTES_MAX + 1))
    assert ping.outcome() == b"+PONG"


# Subscriptions


def subscribed(engine: ClientEngine, name: str | None) -> SubscriptionState:
    """Make a subscription to t on a new connection, with the events 5 and 6 delivered."""
    subscription = SubscriptionState(SubscribeRequest("t", name, 10, "prefetch=10"), "earliest")
    engine.begin_connection()
    engine.subscriptions.add(subscription)
    engine.send(SubscribeCommand(subscription.subscribe_line(), subscription))
    reply = b"+OK sub t as=%b from=0 pending=2 prefetch=10\n" % (name or "conn-1").encode()
    engine.receive(GREETING + reply + event_line(5) + event_line(6))
    engine.take_output()
    return subscription


@pytest.mark.parametrize(
    ("name", "resumed"),
    [("s", b"sub t as=s from=earliest prefetch=10\n"), (None, b"sub t from=7 prefetch=10\n")],
    ids=["durable", "anonymous"],
)
def test_a_new_connection_continues_with_a_subscription_and_its_acks_are_not_sent_again(
    name: str | None, resumed: bytes
) -> None:
    engine = new_engine()
    subscription = subscribed(engine, name)
    assert [event.offset for event in subscription._take_events()] == [5, 6]
    engine.post(AckCommand(b"ack t @5\n", subscription, 1))
    engine.post(ConnectionCommand(b"ping\n"))
    assert engine.take_output() == b"ack t @5\nping\n"
    engine.end_connection()
    engine.post(AckCommand(b"ack t @6\n", subscription, 1))
    engine.begin_connection()
    assert engine.take_output() == HELLO + resumed
    engine.receive(GREETING + b"+OK sub t as=s from=0 pending=1 prefetch=10\n" + event_line(7))
    assert [event.offset for event in subscription._take_events()] == [7]


def test_an_anonymous_subscription_continues_before_the_events_that_were_not_handed_over() -> None:
    engine = new_engine()
    subscription = subscribed(engine, None)
    for _ in range(2):
        engine.end_connection()
        engine.begin_connection()
        assert engine.take_output() == HELLO + b"sub t from=5 prefetch=10\n"
        assert subscription._take_events() == []


def test_a_subscription_that_cannot_continue_is_not_continued_later_and_its_topic_is_free() -> None:
    engine = new_engine()
    subscription = subscribed(engine, "s")
    engine.end_connection()
    engine.begin_connection()
    engine.receive(GREETING + b"-ERR unknown_topic there is no topic t\n")
    assert isinstance(subscription._error, Refusal)
    engine.end_connection()
    engine.begin_connection()
    assert engine.take_output() == HELLO
    engine.subscriptions.add(SubscriptionState(SubscribeRequest("t", "s", 10, "prefetch=10"), "earliest"))


def test_a_subscribe_that_was_given_up_is_taken_back_and_its_events_belong_to_no_other() -> None:
    engine = new_engine()
    engine.begin_connection()
    engine.receive(GREETING)
    given_up, wanted = (
        SubscriptionState(SubscribeRequest("t", name, 10, "prefetch=10"), "earliest") for name in ("a", "b")
    )
    command = SubscribeCommand(given_up.subscribe_line(), given_up)
    engine.send(command)
    command.abandon()
    engine.post(engine.subscriptions.abandon(given_up))
    engine.subscriptions.add(wanted)
    engine.send(SubscribeCommand(wanted.subscribe_line(), wanted))
    engine.receive(b"+OK sub t as=a from=0 pending=1 prefetch=10\n" + event_line(1) + b"+OK unsub t as=a\n")
    engine.receive(b"+OK sub t as=b from=0 pending=1 prefetch=10\n" + event_line(2))
    assert [event.offset for event in wanted._take_events()] == [2]
    assert given_up._take_events() == []


def test_a_notice_ends_one_subscription_and_a_broken_protocol_ends_all() -> None:
    engine = new_engine()
    subscription = subscribed(engine, "s")
    engine.receive(b"!ended t as=other boss ended it\n!unknown\n")
    assert subscription._error is None
    engine.receive(b"!ended t as=s boss ended it\n")
    assert isinstance(subscription._error, SubscriptionEnded)
    other = subscribed(engine, "s")
    ping = engine.send(Command(b"ping\n"))
    with pytest.raises(ProtocolError) as raised:
        engine.receive(b"what is this\n")
    engine.fail(raised.value)
    assert (ping.error, other._error) == (raised.value, raised.value)
    assert not engine.subscriptions


# Reports to the log


def test_refusals_that_no_caller_waits_for_are_reported_to_the_log() -> None:
    engine = new_engine()
    subscription = subscribed(engine, "s")
    engine.post(AckCommand(b"ack t @5 @6\n", subscription, 2))
    engine.post(AckCommand(b"ack t @5\n", subscription, 1))
    (trouble,) = engine.receive(b"-ERR disk full\n-ERR stale gone\n")
    assert trouble.fields == {"topic": "t", "events": 2, "reason": "disk full"}
    assert (subscription.refused, subscription.stale) == (2, 1)


def test_a_temporarily_refused_login_ends_the_connection_and_a_permanently_refused_one_is_reported() -> None:
    engine = new_engine()
    engine.begin_connection()
    greeting = GREETING.splitlines(keepends=True)[0]
    with pytest.raises(LoginPostponed, match="busy"):
        engine.receive(greeting + b"-ERR busy too many logins\n")
    engine.end_connection()
    hello = engine.begin_connection()
    (trouble,) = engine.receive(greeting + b"-ERR unauthenticated wrong token\n")
    assert trouble.fields == {"code": "unauthenticated", "reason": "wrong token"}
    assert isinstance(hello.error, Refusal)


def test_pauses_grow_until_a_connection_stays() -> None:
    pauses = ReconnectPauses()
    for _ in range(10):
        pauses.next_s()
    pauses.note_lost(SETTLED_S / 2)
    assert pauses.next_s() >= MAX_S / 2
    pauses.note_lost(SETTLED_S * 2)
    assert pauses.next_s() <= FIRST_S
