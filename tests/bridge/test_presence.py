"""A broker sees the others through its bridge, with a registry in memory and a real broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from bridge.engines.memory_registry import MemoryHeartbeats, MemoryRegistry
from bridge.presence import Presence
from tests.support.processes import BrokerProcess
from tweetwire import Client, Event
from tweetwire.cluster import CLUSTER_VIEW, CentreView, Heartbeat, newest_views, standing_of
from tweetwire.protocol.errors import StartError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def heartbeats() -> MemoryHeartbeats:
    return MemoryHeartbeats()


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with Client(broker.address, name="test") as client:
        yield client


@asynccontextmanager
async def present(client: Client, heartbeats: MemoryHeartbeats) -> AsyncIterator[Presence]:
    """Run a presence during the block, and end it as the program does."""
    presence = Presence("memory://c", MemoryRegistry(heartbeats), client, "here:1", 0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(presence.run)
        yield presence
        tasks.cancel_scope.cancel()


async def view_of(client: Client, least: int = 1, trouble: str = "") -> CentreView:
    """Wait for a view with at least `least` brokers and this trouble."""
    with anyio.fail_after(60):
        while True:
            if any(one.topic == CLUSTER_VIEW for one in await client.topics()):
                found = newest_views((await client.read(CLUSTER_VIEW, 0, limit=10_000)).events).get("memory://c")
                if found is not None and len(found[0].brokers) >= least and trouble in found[0].trouble:
                    return found[0]
            await anyio.sleep(0.01)


def other(broker: str = "B" * 22, **members: object) -> bytes:
    plain = Heartbeat(broker=broker, address="there:2", version="0.9", at_ms=10**15, every_s=5)
    return msgspec.json.encode(msgspec.to_builtins(plain) | members)


async def test_the_broker_learns_of_itself_and_of_the_others(client: Client, heartbeats: MemoryHeartbeats) -> None:
    async with client.publisher("orders") as publisher:
        for number in range(7):
            await publisher.publish(Event(id=f"e{number}", msg=number))
    await client.mark("orders", "redis.orders", 3)
    # A clock that is far ahead does no harm, since ages are those of the engine's clock.
    await MemoryRegistry(heartbeats).announce("B" * 22, other())
    async with present(client, heartbeats):
        view = await view_of(client, 2)
    mine, theirs = view.brokers
    assert (mine.heartbeat.broker, mine.heartbeat.address) == (client.broker_identity, "here:1")
    (orders,) = [one for one in mine.heartbeat.topics if one.topic == "orders"]
    assert (orders.earliest, orders.next, orders.lag) == (0, 7, {"redis.orders": 4})
    assert theirs.heartbeat.address == "there:2"
    assert 0 <= theirs.age_s < 60


async def test_an_orderly_end_is_announced(client: Client, heartbeats: MemoryHeartbeats) -> None:
    async with present(client, heartbeats):
        await view_of(client)
    (sighting,) = await MemoryRegistry(heartbeats).sightings()
    found = msgspec.json.decode(sighting.heartbeat, type=Heartbeat)
    assert standing_of(found, sighting.age_s) == "stopped"


async def test_without_the_engine_the_last_known_heartbeats_grow_older(
    client: Client, heartbeats: MemoryHeartbeats
) -> None:
    async with present(client, heartbeats) as presence:
        before = await view_of(client)
        heartbeats.is_down = True
        first = await view_of(client, trouble="is down")
        await anyio.sleep(0.1)
        later = await view_of(client, trouble="is down")
        assert first.brokers[0].age_s > before.brokers[0].age_s or later.brokers[0].age_s > first.brokers[0].age_s
        assert later.asked_s is not None
        assert later.asked_s > 0
        heartbeats.is_down = False
        announced = presence.announced
        with anyio.fail_after(60):
            while presence.announced == announced:
                await anyio.sleep(0.01)
        assert presence.failures > 0


async def test_an_engine_that_never_takes_a_registry_ends_nothing(client: Client, heartbeats: MemoryHeartbeats) -> None:
    class Refusing(MemoryRegistry):
        async def open(self) -> None:
            raise StartError("the user may not")

    presence = Presence("memory://c", Refusing(heartbeats), client, "here:1", 0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(presence.run)
        view = await view_of(client, 0, "may not")
        tasks.cancel_scope.cancel()
    assert (view.brokers, view.asked_s) == ([], None)


async def test_other_content_and_heartbeats_under_a_wrong_name_are_counted(
    client: Client, heartbeats: MemoryHeartbeats
) -> None:
    registry = MemoryRegistry(heartbeats)
    await registry.announce("X" * 22, b"hello")
    await registry.announce("Y" * 22, other(form=2))
    await registry.announce("Z" * 22, other("B" * 22))
    async with present(client, heartbeats):
        view = await view_of(client)
    assert [one.heartbeat.broker for one in view.brokers] == [client.broker_identity]
    assert view.unreadable == 3
