"""Routes that run inside a test, on a real broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from bridge.central import Destination, Origin
from bridge.inward import Inward
from bridge.outward import Outward
from bridge.route import parse_in, parse_out
from tweetwire import Client, StoredEvent

__all__ = ["events_at", "running_in", "running_out", "until_marked"]


@asynccontextmanager
async def running_out(
    address: str, destination: Destination, options: str = "", *, new_identity: bool = False
) -> AsyncIterator[Outward]:
    """Carry the topic `orders` to a destination during the block."""
    route = parse_out(f"orders -> redis://engine/orders{options}")
    async with Client(address, name="bridge") as client, Client(address, name="reader") as reader:
        outward = Outward(route, client, reader, destination, takes_new_identity=new_identity)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outward.run)
            yield outward
            outward.stop()


@asynccontextmanager
async def running_in(address: str, origin: Origin, options: str = "") -> AsyncIterator[Inward]:
    """Carry an origin to the topic `taken` during the block."""
    route = parse_in(f"redis://engine/orders{options} -> taken")
    async with Client(address, name="bridge") as client:
        inward = Inward(route, client, origin)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inward.run)
            yield inward
            inward.stop()


async def until_marked(client: Client, offset: int) -> None:
    """Wait until the route's mark is at an offset."""
    with anyio.fail_after(60):
        while not any(mark.offset >= offset for mark in await client.marks("orders")):
            await anyio.sleep(0.01)


async def events_at(client: Client, topic: str, count: int) -> list[StoredEvent]:
    """Wait until a topic has `count` events, and return all its events."""

    async def found() -> list[StoredEvent]:
        if all(info.topic != topic for info in await client.topics()):
            return []
        return (await client.read(topic, 0, limit=10_000)).events

    with anyio.fail_after(60):
        while len(events := await found()) < count:
            await anyio.sleep(0.01)
    return events
