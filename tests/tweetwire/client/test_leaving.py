"""How the two clients leave subscriptions and end them, on a real broker."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.support.taking import taken
from tweetwire import Client, Event, StoredEvent, SyncClient

pytestmark = pytest.mark.anyio


def figures(client: SyncClient, topic: str) -> dict[str, Any]:
    subscriptions: dict[str, Any] = client.stats()["topics"][topic]["subscriptions"]
    return subscriptions


def test_the_blocking_client_leaves_and_later_receives_its_unsettled_events(
    shared_broker: BrokerProcess, topic: str
) -> None:
    with SyncClient(shared_broker.address) as client:
        subscription = client.subscribe(topic, as_="s", create=True)
        client.publish_many(topic, [Event(id="a", msg=1), Event(id="b", msg=2)])
        subscription.ack(taken(subscription, 2)[:1])
        client.unsubscribe(subscription)
        assert subscription.take() == [], "it has ended on this side"
        assert figures(client, topic)["s"]["pending"] == 1
        (event,) = taken(again := client.subscribe(topic, as_="s"), 1)
        assert (event.id, event.attempt) == ("b", 1), "leaving is no failed try"
        client.unsubscribe(again, end=True)
        assert figures(client, topic) == {}


def test_end_on_a_subscription_without_a_name_is_the_same_as_leaving(shared_broker: BrokerProcess, topic: str) -> None:
    with SyncClient(shared_broker.address) as client:
        client.unsubscribe(client.subscribe(topic, create=True), end=True)
        assert figures(client, topic) == {}


async def test_the_async_client_leaves_without_taking_anything_from_the_other_member(
    shared_broker: BrokerProcess, topic: str
) -> None:
    async with Client(shared_broker.address) as one, Client(shared_broker.address) as other:
        leaving = await one.subscribe(topic, as_="s", prefetch=1, create=True)
        staying = await other.subscribe(topic, as_="s", prefetch=1)
        for id_ in ("a", "b"):
            await one.publish(topic, Event(id=id_, msg=1))
        given, (mine,) = await anext(leaving), await anext(staying)
        await one.unsubscribe(leaving)
        assert [batch async for batch in leaving] == [], "it has ended on this side"
        await staying.ack([mine])
        assert [(event.id, event.attempt) for event in await anext(staying)] == [(given[0].id, 1)]
        await other.unsubscribe(staying, end=True)
        assert (await other.stats())["topics"][topic]["subscriptions"] == {}


async def test_leaving_an_exactly_once_subscription_keeps_its_spool_and_ending_it_does_not(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"as_": "s", "from_": "earliest", "qos": 2}
    async with Client(shared_broker.address, name="ann", spool=tmp_path) as client:
        for number in range(3):
            await client.publish(topic, Event(id=f"m{number}", msg=number))
        subscription = await client.subscribe(topic, **options)
        seen: list[StoredEvent] = []
        while len(seen) < 3:
            seen += await anext(subscription)
        await client.unsubscribe(subscription)
        assert client.unfinished == 3
        again = await client.subscribe(topic, **options)
        assert [(event.id, event.attempt) for event in await anext(again)] == [("m0", 2), ("m1", 2), ("m2", 2)]
        await client.unsubscribe(again, end=True)
        assert client.unfinished == 0
        assert (await client.stats())["topics"][topic]["subscriptions"] == {}


async def test_an_abandoned_client_leaves_as_a_process_that_dies(shared_broker: BrokerProcess, topic: str) -> None:
    async with Client(shared_broker.address) as watching:
        await watching.publish(topic, Event(id="1", msg=1))
        async with Client(shared_broker.address) as client:
            subscription = await client.subscribe(topic, as_="s", from_="earliest", tries=1)
            assert [event.id for event in await anext(subscription)] == ["1"]
            client.abandon()
        with anyio.fail_after(20):
            while (await watching.stats())["topics"][topic]["subscriptions"]["s"]["dead"] != 1:
                await anyio.sleep(0.01)
