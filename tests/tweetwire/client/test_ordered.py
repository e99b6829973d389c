"""Ordered subscriptions through both clients and the command line, on a real broker."""

import json

import pytest

from tests.support.commands import Tweetwire
from tests.support.processes import BrokerProcess
from tests.tweetwire.client.either_client import Opener, taken
from tweetwire import Event, Refusal, SyncClient

pytestmark = pytest.mark.anyio


async def test_the_events_of_a_key_are_handled_in_order_after_a_nack(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address) as client:
        await client.publish_many(topic, [Event(id=f"e{n}", msg=n, key="ab"[n % 2]) for n in range(6)])
        subscription = await client.subscribe(topic, as_="s", from_="earliest", prefetch=10, ordered="key")
        events = await taken(subscription, 6)
        assert [event.offset for event in events] == [0, 1, 2, 3, 4, 5]
        await subscription.nack(events[0], "no")
        again = await taken(subscription, 3)
        assert [(event.offset, event.attempt) for event in again] == [(0, 2), (2, 1), (4, 1)]
        await subscription.ack(events)
        stats = await client.call("stats", topic)
        figures = stats["topics"][topic]["subscriptions"]["s"]
        assert (figures["pending"], figures["in_flight"], figures["parked"]) == (0, 0, 0)
        assert figures["policy"]["ordered"] == "key"


async def test_a_wrong_order_is_refused(opened: Opener, shared_broker: BrokerProcess, topic: str) -> None:
    async with opened(shared_broker.address) as client:
        with pytest.raises(Refusal, match="ordered is key or none"):
            await client.subscribe(topic, create=True, ordered="topic")
        with pytest.raises(ValueError, match="not one word"):
            await client.subscribe(topic, create=True, ordered="key begins")


def test_the_command_line_consumes_in_order(shared_broker: BrokerProcess, topic: str) -> None:
    tweetwire = Tweetwire(shared_broker)
    with SyncClient(shared_broker.address) as client:
        for number in range(4):
            client.publish(topic, Event(id=f"e{number}", msg=number, key="k", priority=number))
        out = tweetwire("sub", topic, "--as", "s", "--from", "earliest", "--ordered", "key", "--count", 4, "--json").out
        assert [json.loads(line)["offset"] for line in out.splitlines()] == [0, 1, 2, 3]
        assert client.stats(topic)["topics"][topic]["subscriptions"]["s"]["policy"]["ordered"] == "key"
