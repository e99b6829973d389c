"""Replies find their commands: in their order, across merged confirmations, reads, events and lost connections."""

import anyio
import pytest

from broker import Event, Refusal
from broker.client.commands import Command, PublishCommand, SubscribeCommand
from broker.client.link import Link
from broker.client.publisher import Publisher
from broker.client.subscription import Subscription
from broker.client.unanswered import Unanswered
from broker.protocol.replies import Receipt

pytestmark = pytest.mark.anyio

EVENT = b'{"topic":"t","offset":7,"timestamp":1,"id":"1","priority":0,"msg":1}'


@pytest.fixture
def unanswered() -> Unanswered:
    return Unanswered()


@pytest.fixture
def link() -> Link:
    """One that is not connected, so that whatever is sent is only remembered."""
    return Link(
        "127.0.0.1:1",
        "test",
        tls=None,
        timeout_s=30,
        first_commands=list,
        deliver=lambda events: None,
        is_listening=lambda: False,
    )


def added(unanswered: Unanswered, *commands: Command) -> None:
    for command in commands:
        unanswered.add(command)


async def reply_of(command: Command) -> bytes:
    with anyio.fail_after(30):
        return await command.wait()


async def test_each_reply_goes_to_the_command_whose_turn_it_is(unanswered: Unanswered) -> None:
    ping, bad, last = Command(b"ping\n"), Command(b"nonsense\n"), Command(b"last t p\n")
    added(unanswered, ping, bad, last)
    assert [event.offset for event in unanswered.take([b"+PONG", EVENT, b"-ERR unknown_command nonsense"])] == [7]
    assert await reply_of(ping) == b"+PONG"
    with pytest.raises(Refusal, match="unknown_command"):
        await reply_of(bad)
    assert last.reply is None
    assert unanswered.take([b"+OK last t p null"]) == []
    assert await reply_of(last) == b"+OK last t p null"


async def test_one_confirmation_is_shared_by_single_publishes_and_runs(unanswered: Unanswered, link: Link) -> None:
    receipts: list[Receipt] = []
    publisher = Publisher(link, "t", 100, receipts.append)
    publisher.unconfirmed = 3
    single = PublishCommand(b"pub t {}\n")
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


async def test_what_is_read_belongs_to_the_read_and_is_no_delivery(unanswered: Unanswered) -> None:
    read, ping = Command(b"read t 0\n"), Command(b"ping\n")
    added(unanswered, read, ping)
    assert unanswered.take([b"+OK read t 2 next=2", EVENT]) == []
    assert [event.offset for event in unanswered.take([EVENT, EVENT, b"+PONG"])] == [7]
    assert (await reply_of(read), read.lines) == (b"+OK read t 2 next=2", [EVENT, EVENT])
    assert await reply_of(ping) == b"+PONG"


async def test_a_new_connection_begins_with_the_first_commands_and_says_again_what_had_no_reply(
    unanswered: Unanswered, link: Link
) -> None:
    subscription = Subscription(link, "t", "me", "latest", "prefetch=1")
    read, ping = Command(b"read t 0\n"), Command(b"ping\n")
    added(unanswered, read, ping)
    unanswered.take([b"+OK read t 2 next=2", EVENT])
    hello = SubscribeCommand(subscription.resume_line(), subscription)
    assert unanswered.begin_again([Command(b""), hello]) == [
        b"sub t as=me from=latest prefetch=1\n",
        b"read t 0\n",
        b"ping\n",
    ]
    unanswered.take([b"+OK hi", b"+OK sub t as=me from=0 pending=0 prefetch=1", b"+OK read t 0 next=0", b"+PONG"])
    assert (subscription.known_as, read.lines) == ("me", [])
    assert await reply_of(ping) == b"+PONG"


async def test_acks_are_not_sent_without_a_connection(link: Link) -> None:
    subscription = Subscription(link, "t", "me", "latest", "prefetch=1")
    publisher = Publisher(link, "t", 100, None)
    await publisher.publish(Event(id="1", msg=1))
    unanswered = link._unanswered
    subscription.deliver(unanswered.take([EVENT]))
    (event,) = await anext(subscription)
    await subscription.ack([event])
    await subscription.nack(event, "no")
    assert unanswered.begin_again([]) == [b'pub t {"id":"1","priority":0,"msg":1}\n']
