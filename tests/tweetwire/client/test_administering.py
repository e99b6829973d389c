"""The commands of both clients that administer topics and subscriptions, with a real broker."""

from collections.abc import Iterator

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import scripted_broker
from tests.tweetwire.client.either_client import Opener, taken
from tweetwire import BrokerLost, Event, Refusal, SubscriptionEnded

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("administering") / "broker") as process:
        yield process


async def test_a_topic_is_created_once_and_keeps_its_retention(
    opened: Opener, broker: BrokerProcess, topic: str
) -> None:
    async with opened(broker.address) as client:
        assert await client.call("create", topic, age="7d", at_most="1GiB")
        assert not await client.call("create", topic)
        assert not await client.call("create", topic, age="7d")
        with pytest.raises(Refusal, match=f"retain {topic}"):
            await client.call("create", topic, age="8d")
        with pytest.raises(ValueError, match="not an option of a retention"):
            await client.call("create", topic, ages="8d")
        assert (await client.call("command", f"retain {topic}")).endswith("age=7d bytes=none settled=no at_most=1GiB")


async def test_purged_events_are_gone_and_a_dropped_topic_ends_its_subscriptions(
    opened: Opener, broker: BrokerProcess, topic: str
) -> None:
    async with opened(broker.address, name="admin") as client:
        await client.publish_many(topic, [Event(id=f"m{n}", msg=n) for n in range(10)])
        subscription = await client.subscribe(topic, as_="s", from_="earliest", prefetch=1)
        assert [event.id for event in await taken(subscription, 1)] == ["m0"]
        assert await client.call("purge", topic, 7) == 7
        assert [event.id for event in (await client.call("read", topic, 0)).events] == ["m7", "m8", "m9"]
        with pytest.raises(Refusal, match="has 3 events"):
            await client.call("drop", topic, if_empty=True)
        assert await client.call("purge", topic) == 10
        await client.call("drop", topic, if_empty=True)
        with pytest.raises(SubscriptionEnded, match="admin dropped the topic"):
            while True:
                await subscription.take()
        with pytest.raises(Refusal, match="unknown_topic"):
            await client.call("read", topic, 0)
        assert (await client.call("publish", topic, Event(id="again", msg=1))).first == 0


async def test_a_subscription_is_paused_resumed_and_sought(opened: Opener, broker: BrokerProcess, topic: str) -> None:
    async with opened(broker.address) as client:
        await client.publish_many(topic, [Event(id=f"m{n}", msg=n) for n in range(5)])
        subscription = await client.subscribe(topic, as_="s", from_="latest")
        await client.call("pause", topic, "s")
        assert await client.call("seek", topic, "s", "@2") == 2
        figures = (await client.call("stats", topic))["topics"][topic]["subscriptions"]["s"]
        assert (figures["paused"], figures["pending"], figures["in_flight"]) == (True, 3, 0)
        await client.call("resume", topic, "s")
        assert [event.id for event in await taken(subscription, 3)] == ["m2", "m3", "m4"]
        assert await client.call("seek", topic, "s", "latest") == 5
        await client.unsubscribe(subscription, end=True)


async def test_dead_events_are_discarded_by_offset_by_id_and_all(
    opened: Opener, broker: BrokerProcess, topic: str
) -> None:
    async with opened(broker.address) as client:
        await client.publish_many(topic, [Event(id=f"m{n}", msg=n) for n in range(600)])
        subscription = await client.subscribe(topic, as_="s", from_="earliest", tries=1)
        for event in await taken(subscription, 600):
            await subscription.nack(event)
        with anyio.fail_after(60):
            # An event is dead once its letter is stored.
            while (await client.call("command", f"dead topic={topic} limit=1000")).count('"dead_letter"') < 600:
                await anyio.sleep(0.05)
        assert await client.call("discard", topic, "s", [3, "m4"]) == 2
        with pytest.raises(Refusal, match="not a dead event"):
            await client.call("discard", topic, "s", [3])
        assert await client.call("discard", topic, "s", []) == 0
        assert await client.call("discard", topic, "s", list(range(5, 590))) == 585
        assert await client.call("discard", topic, "s", "all") == 13
        await client.unsubscribe(subscription, end=True)


@pytest.mark.parametrize(
    ("method", "arguments"), [("drop", ()), ("purge", ()), ("seek", ("s", "latest")), ("discard", ("s", "all"))]
)
async def test_a_command_that_deletes_is_not_sent_again_when_its_reply_is_lost(
    opened: Opener, method: str, arguments: tuple[str, ...]
) -> None:
    received: list[bytes] = []

    def answer(line: bytes) -> bytes | None:
        received.append(line)
        return b"+PONG\n" if line == b"ping\n" else None

    with scripted_broker(answer, clients=2) as address:
        async with opened(address) as client:
            with anyio.fail_after(20), pytest.raises(BrokerLost):
                await client.call(method, "t", *arguments)
            await client.call("ping")
    assert len([line for line in received if line != b"ping\n"]) == 1


async def test_a_subscription_of_other_clients_ends_for_all_of_them(
    opened: Opener, broker: BrokerProcess, topic: str
) -> None:
    async with opened(broker.address, name="admin") as admin, opened(broker.address) as other:
        await admin.publish_many(topic, [Event(id="1", msg=1)])
        subscription = await other.subscribe(topic, as_="s", from_="earliest")
        await admin.call("end", topic, "s")
        with pytest.raises(SubscriptionEnded, match="admin ended the subscription"):
            await taken(subscription, 2)
        with pytest.raises(Refusal, match="not_subscribed"):
            await admin.call("end", topic, "s")
        await other.subscribe(topic, as_="s")
        with pytest.raises(ValueError, match="this client has the subscription s"):
            await other.call("end", topic, "s")
