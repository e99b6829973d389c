"""Each reply goes to its command, in order, also with merged confirmations, reads, events and lost connections."""

import pytest

from tweetwire import Event, ProtocolError, Refusal
from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.aio.publisher import Publisher
from tweetwire.client.aio.subscription import Subscription
from tweetwire.client.engine import ClientEngine
from tweetwire.client.engine.commands import Command, GreetingCommand, ReadCommand, SubscribeCommand
from tweetwire.client.engine.publishes import PublishCommand
from tweetwire.client.engine.subscriptions import SubscriptionTable
from tweetwire.client.engine.unanswered import Dismissed, Unanswered
from tweetwire.protocol import replies
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.replies import Receipt
from tweetwire.protocol.requests import SubscribeRequest

pytestmark = pytest.mark.anyio

REQUEST = SubscribeRequest("t", "me", 1, "prefetch=1")

EVENT = b'{"topic":"t","offset":7,"timestamp":1,"id":"1","priority":0,"msg":1}'


@pytest.fixture
def delivered() -> list[int | bytes]:
    """The offsets of delivered events, and the lines of notices."""
    return []


class Delivered(SubscriptionTable):
    """Records delivered events and notices in a list."""

    def __init__(self, delivered: list[int | bytes]) -> None:
        super().__init__()
        self._delivered = delivered

    def deliver(self, events: list[StoredEvent]) -> None:
        self._delivered += [event.offset for event in events]

    def note(self, line: bytes) -> None:
        self._delivered.append(line)


@pytest.fixture
def unanswered(delivered: list[int | bytes]) -> Unanswered:
    return Unanswered(Delivered(delivered))


@pytest.fixture
async def link() -> AsyncLink:
    """Return a link that is not connected, so that it only stores the commands sent."""
    link = AsyncLink("127.0.0.1:1", "test", ClientEngine(b"hello test\n", 1000), tls=None, timeout_s=30)
    link.owner.enter()
    return link


def added(unanswered: Unanswered, *commands: Command) -> None:
    for command in commands:
        unanswered.add(command)


async def reply_of(command: Command) -> bytes:
    assert command.is_done
    return command.outcome()


async def test_each_reply_goes_to_the_oldest_command_that_waits(
    unanswered: Unanswered, delivered: list[int | bytes]
) -> None:
    ping, bad, last = Command(b"ping\n"), Command(b"nonsense\n"), Command(b"last t p\n")
    added(unanswered, ping, bad, last)
    unanswered.take([b"+PONG", EVENT, b"-ERR unknown_command nonsense"])
    assert delivered == [7]
    assert await reply_of(ping) == b"+PONG"
    with pytest.raises(Refusal, match="unknown_command"):
        await reply_of(bad)
    assert last.reply is None
    unanswered.take([b"+OK last t p null"])
    assert await reply_of(last) == b"+OK last t p null"
    assert delivered == [7]


async def test_one_confirmation_is_shared_by_single_publishes_and_runs(unanswered: Unanswered, link: AsyncLink) -> None:
    receipts: list[Receipt] = []
    publisher = Publisher(link, "t", 100, receipts.append)
    publisher.unconfirmed = 3
    single = PublishCommand(b"pub t {}\n", "t")
    added(unanswered, single)
    unanswered.add_publishes(publisher, [b"a\n", b"b\n"])
    unanswered.add_publishes(publisher, [b"c\n"])
    unanswered.take([b"+OK pub t 5-7 synced"])
    await reply_of(single)
    assert (single.receipt.first, single.receipt.count) == (5, 1)
    assert [(one.first, one.count) for one in receipts] == [(6, 2)]
    assert unanswered.begin_again([]) == [b"c\n"]
    unanswered.take([b"+OK pub t 8 synced"])
    assert publisher.unconfirmed == 0
    assert unanswered.begin_again([]) == []


async def test_a_read_event_belongs_to_its_read_and_is_not_a_delivery(
    unanswered: Unanswered, delivered: list[int | bytes]
) -> None:
    read, ping = ReadCommand(b"read t 0\n", 2, 1000), Command(b"ping\n")
    added(unanswered, read, ping)
    unanswered.take([b"+OK read t 2 next=2", EVENT])
    assert delivered == []
    unanswered.take([EVENT, EVENT, b"+PONG"])
    assert delivered == [7]
    assert (await reply_of(read), read.lines) == (b"+OK read t 2 next=2", [EVENT, EVENT])
    assert await reply_of(ping) == b"+PONG"


async def test_a_new_connection_begins_with_the_first_commands_and_repeats_those_without_a_reply(
    unanswered: Unanswered, link: AsyncLink
) -> None:
    subscription = Subscription(link, REQUEST, "latest")
    read, ping = ReadCommand(b"read t 0\n", 2, 1000), Command(b"ping\n")
    added(unanswered, read, ping)
    unanswered.take([b"+OK read t 2 next=2", EVENT])
    unanswered.end_connection()
    hello = SubscribeCommand(subscription.resume_line(), subscription)
    assert unanswered.begin_again([GreetingCommand(lambda _: None), hello]) == [
        b"sub t as=me from=latest prefetch=1\n",
        b"read t 0\n",
        b"ping\n",
    ]
    unanswered.take([b"+OK hi", b"+OK sub t as=me from=0 pending=0 prefetch=1", b"+OK read t 0 next=0", b"+PONG"])
    assert (subscription.known_as, read.lines) == ("me", [])
    assert await reply_of(ping) == b"+PONG"


async def test_acks_are_not_sent_without_a_connection(link: AsyncLink) -> None:
    subscription = Subscription(link, REQUEST, "latest")
    publisher = Publisher(link, "t", 100, None)
    await publisher.publish(Event(id="1", msg=1))
    unanswered = link.engine._unanswered
    subscription.begin("me")
    subscription.deliver(replies.events([EVENT]))
    (event,) = await anext(subscription)
    await subscription.ack([event])
    await subscription.nack(event, "no")
    assert unanswered.begin_again([]) == [b'pub t {"id":"1","priority":0,"msg":1}\n']


async def test_events_keep_their_order_relative_to_the_reply_to_a_subscribe(
    unanswered: Unanswered, link: AsyncLink, delivered: list[int | bytes]
) -> None:
    subscription = Subscription(link, REQUEST, "latest")
    begun_after: list[list[int | bytes]] = []
    subscription.begin = lambda known_as: begun_after.append(list(delivered))  # type: ignore[method-assign]
    added(unanswered, SubscribeCommand(b"sub t as=me\n", subscription))
    later = EVENT.replace(b"7", b"8")
    unanswered.take([EVENT, b"+OK sub t as=me from=0 pending=0 prefetch=1", later, b"!ended t as=me x", later])
    assert begun_after == [[7]]
    assert delivered == [7, 8, b"!ended t as=me x", 8]


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ([], [b"+PONG"]),
        ([Command(b"ping\n")], [b"+PONG", b"+PONG"]),
        ([Command(b"ping\n")], [b"+OK last t p null"]),
        ([Command(b"last t p\n")], [b"+OK last t q null"]),
        ([Command(b"last t p\n")], [b"+OK last t pp null"]),
        ([Command(b"ping\n")], [b"+OK pub t 1 synced"]),
        ([PublishCommand(b"pub t {}\n", "t")], [b"+OK pub u 1 synced"]),
        ([PublishCommand(b"pub t {}\n", "t")], [b"+OK pub t 1-2 synced"]),
        ([PublishCommand(b"pub t {}\n", "t")], [b"+OK pub t 2-1 synced"]),
        ([PublishCommand(b"pub t {}\n", "t")], [b"+OK pub t 1-" + b"9" * 5000 + b" synced"]),
        ([PublishCommand(b"pub t {}\n", "t")], [b"+OK pub t"]),
        ([PublishCommand(b"pub t {}\n", "t")], [b"+OK pub \xff 1 synced"]),
        ([ReadCommand(b"read t 0\n", 1, 1000)], [b"+OK read t 2 next=2"]),
        ([ReadCommand(b"read t 0\n", 1, 1000)], [b"+OK read t -1 next=2"]),
        ([ReadCommand(b"read t 0\n", 1, 1000)], [b"+OK read t x"]),
        ([ReadCommand(b"read t 0\n", 9, 100)], [b"+OK read t 9 next=9", EVENT, EVENT, EVENT]),
        ([Command(b"ping\n")], [b"-PONG"]),
        ([], [b""]),
        ([], [b"GET / HTTP/1.1"]),
        ([], [EVENT[:-1]]),
        ([], [b"{" * 10_000]),
        ([], [EVENT.replace(b'"t"', b"1")]),
        ([], [EVENT.replace(b'"t"', b'"\xff"')]),
    ],
)
async def test_a_line_that_no_broker_sends_is_a_protocol_error(
    unanswered: Unanswered, asked: list[Command], lines: list[bytes]
) -> None:
    added(unanswered, *asked)
    with pytest.raises(ProtocolError) as raised:
        unanswered.take(lines)
    assert len(str(raised.value)) < 500


async def test_a_refusal_while_no_command_waits_ends_the_connection(unanswered: Unanswered) -> None:
    with pytest.raises(Dismissed, match="busy"):
        unanswered.take([b"-ERR busy come back later"])


async def test_events_after_a_refused_sequence_are_not_sent_on_a_new_connection(
    unanswered: Unanswered, link: AsyncLink
) -> None:
    publisher = Publisher(link, "t", 100, None)
    lines = [b'pub t {"id":"%d","priority":0,"msg":1,"producer":"p","sequence":%d}\n' % (n, n) for n in range(4)]
    plain = b'pub t {"id":"x","priority":0,"msg":1}\n'
    publisher.unconfirmed = 5
    unanswered.add_publishes(publisher, [*lines[:3], plain])
    added(unanswered, Command(b"ping\n"))
    unanswered.add_publishes(publisher, lines[3:])
    unanswered.take([b"+OK pub t 0 synced", b"-ERR forbidden p needs a publish pattern for t"])
    assert unanswered.begin_again([]) == [plain, b"ping\n"]
    with pytest.raises(Refusal, match="forbidden"):
        await publisher.flush()
    unanswered.take([b"+OK pub t 1 synced", b"+PONG"])
    await publisher.flush()
    unanswered.add_publishes(publisher, lines[1:])
    publisher.unconfirmed = 3
    assert unanswered.begin_again([]) == [b"".join(lines[1:])]
