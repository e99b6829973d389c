"""Requests and replies of both clients, with a real broker and with one that follows a script."""

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import scripted_broker
from tests.tweetwire.client.either_client import EitherClient, EitherSubscription, Opener
from tweetwire import BrokerLost, Client, Event, NoReply, ProtocolError, Refusal, StoredEvent, SyncClient

pytestmark = pytest.mark.anyio

REPLY = b'!reply t 0 {"topic":"replies","offset":0,"timestamp":1,"id":"a","priority":0,"msg":1,"parent":"r"}\n'
STORED = b"+OK request t 0 synced\n"


async def respond(client: EitherClient, subscription: EitherSubscription, count: int) -> list[StoredEvent]:
    """Answer `count` requests with twice their message."""
    answered: list[StoredEvent] = []
    while len(answered) < count:
        events = await subscription.take()
        for event in events:
            await client.call("reply", event, event.decode() * 2)
        await subscription.ack(events)
        answered += events
    return answered


async def test_a_request_returns_the_reply(opened: Opener, shared_broker: BrokerProcess, topic: str) -> None:
    async with opened(shared_broker.address, name="a") as asking, opened(shared_broker.address, name="b") as answering:
        subscription = await answering.subscribe(topic, as_="s", create=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(respond, answering, subscription, 1)
            reply = await asking.call("request", topic, Event(id="r-1 x", msg=21, headers={"a": "b"}), timeout_s=20)
        assert (reply.topic, reply.parent, reply.decode()) == ("replies", "r-1 x", 42)
        (stored,) = (await asking.call("read", topic, 0)).events
        assert stored.headers == {"a": "b", "reply-to": reply.key}


async def test_a_request_without_a_responder_ends_with_no_reply_and_the_client_can_be_used_on(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address) as client:
        with pytest.raises(NoReply, match="no reply to the request 'r'"):
            await client.call("request", topic, Event(id="r", msg=1), timeout_s=0.2)
        assert await client.call("command", "ping") == "+PONG"
        with pytest.raises(NoReply):
            await client.call("request", topic, Event(id="r", msg=1), timeout_s=0.2)
        assert len((await client.call("read", topic, 0)).events) == 2


async def test_many_requests_wait_on_one_connection_and_each_gets_its_own_reply(
    shared_broker: BrokerProcess, topic: str
) -> None:
    async with Client(shared_broker.address, name="a") as asking, Client(shared_broker.address, name="b") as answering:
        subscription = await answering.subscribe(topic, as_="s", create=True)

        async def answer_in_reverse() -> None:
            waiting: list[StoredEvent] = []
            async for events in subscription:
                waiting += events
                if len(waiting) == 100:
                    for event in reversed(waiting):
                        await answering.reply(event, event.decode() * 2)
                    return

        async def ask(number: int) -> None:
            replies[number] = (await asking.request(topic, Event(id=f"r{number}", msg=number), timeout_s=60)).decode()

        replies: dict[int, int] = {}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_in_reverse)
            for number in range(100):
                tasks.start_soon(ask, number)
        assert replies == {number: number * 2 for number in range(100)}


async def test_other_calls_are_answered_while_a_request_waits(shared_broker: BrokerProcess, topic: str) -> None:
    async with Client(shared_broker.address) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.request, topic, Event(id="r", msg=1))
        with anyio.fail_after(4):
            await client.publish(topic, Event(id="x", msg=1))
            with pytest.raises(ValueError, match="this client already waits for a reply to the id 'r'"):
                await client.request(topic, Event(id="r", msg=1))
        tasks.cancel_scope.cancel()


async def test_a_cancelled_request_leaves_the_client_usable(shared_broker: BrokerProcess, topic: str) -> None:
    async with Client(shared_broker.address) as client:
        with anyio.move_on_after(0.1):
            await client.request(topic, Event(id="r", msg=1), timeout_s=0.5)
        with pytest.raises(Refusal, match="waits on this connection"):
            await client.request(topic, Event(id="r", msg=1), timeout_s=0.5)
        with pytest.raises(NoReply):
            await client.request(topic, Event(id="r2", msg=1), timeout_s=1)


async def test_a_refused_request_raises_the_refusal(opened: Opener, shared_broker: BrokerProcess, topic: str) -> None:
    async with opened(shared_broker.address) as client:
        for event in (Event(id="r", msg=1, headers={"reply-to": "x"}), Event(id="r", msg=1, producer="p", sequence=1)):
            with pytest.raises(Refusal, match="bad_event"):
                await client.call("request", topic, event)
        with pytest.raises(Refusal, match="at most 1h"):
            await client.call("request", topic, Event(id="r", msg=1), timeout_s=4000)
        with pytest.raises(ValueError, match="timeout_s"):
            await client.call("request", topic, Event(id="r", msg=1), timeout_s="5s")
        with pytest.raises(ValueError, match="not one word"):
            await client.call("request", f"{topic} x", Event(id="r", msg=1))


async def test_only_a_request_can_be_replied_to(opened: Opener, shared_broker: BrokerProcess, topic: str) -> None:
    async with opened(shared_broker.address) as client:
        await client.call("publish", topic, Event(id="e", msg=1))
        (event,) = (await client.call("read", topic, 0)).events
        with pytest.raises(ValueError, match="the event 'e' is not a request"):
            await client.call("reply", event, 1)


async def test_a_lost_connection_ends_a_request_that_is_not_sent_again(opened: Opener, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        async with opened(broker.address, timeout_s=60) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(raises_lost, client)
                while not (await topics_of(broker)).count("t"):
                    await anyio.sleep(0.02)
                broker.kill()
            broker.start()
            assert len((await client.call("read", "t", 0)).events) == 1


async def raises_lost(client: EitherClient) -> None:
    with pytest.raises(BrokerLost):
        await client.call("request", "t", Event(id="r", msg=1), timeout_s=100)


async def topics_of(broker: BrokerProcess) -> list[str]:
    async with Client(broker.address, name="looking") as client:
        return [info.topic for info in await client.topics() if info.next]


def scripted(*answers: bytes) -> Callable[[bytes], bytes]:
    left = list(answers)
    return lambda line: b"+OK hello x\n" if line.startswith(b"hello") else left.pop(0)


@pytest.mark.parametrize("answers", [[STORED + REPLY], [REPLY + STORED], [STORED + REPLY + REPLY]])
async def test_the_reply_may_come_before_the_confirmation_or_twice(opened: Opener, answers: Sequence[bytes]) -> None:
    answer = scripted(*answers, b"+PONG\n")
    with scripted_broker(answer) as address:
        async with opened(address) as client:
            reply = await client.call("request", "t", Event(id="r", msg=1))
            assert reply.decode() == 1
            await client.call("ping")


@pytest.mark.parametrize(
    "notice", [b"!reply t 0 {}\n", b"!reply t\n", b"!timeout t 0 r\n", REPLY.replace(b'"parent":"r"', b'"key":"k"')]
)
async def test_a_malformed_notice_is_an_error_of_the_protocol(opened: Opener, notice: bytes) -> None:
    answer = scripted(STORED + notice)
    with scripted_broker(answer) as address:
        async with opened(address) as client:
            with pytest.raises(ProtocolError):
                await client.call("request", "t", Event(id="r", msg=1))


async def test_a_broker_that_never_ends_the_wait_is_given_up(opened: Opener) -> None:
    answer = scripted(STORED, *[b"+PONG\n"] * 50)
    with scripted_broker(answer) as address:
        async with opened(address, timeout_s=0.3) as client:
            with pytest.raises(BrokerLost, match="did not answer the request 'r'"):
                await client.call("request", "t", Event(id="r", msg=1), timeout_s=0.1)


def test_a_reply_may_take_longer_than_the_broker_may_be_silent(shared_broker: BrokerProcess, topic: str) -> None:
    with SyncClient(shared_broker.address, timeout_s=0.2) as client, pytest.raises(NoReply):
        client.request(topic, Event(id="r", msg=1), timeout_s=1)
