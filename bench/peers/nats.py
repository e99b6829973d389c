"""The peer NATS JetStream: a file stream and a durable pull consumer with explicit acknowledgements."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
from nats.js.api import StorageType

from bench.peers.peer import Consumed, PeerBroker, PeerTask, server

__all__ = ["NATS"]

_BATCH = 1000


def _start(home: Path, port: int) -> Iterator[None]:
    with server(home / "log", port, "nats-server", "-a", "127.0.0.1", "-p", port, "-js", "-sd", home / "store"):
        yield


def _prepare(task: PeerTask) -> None:
    async def make() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{task.port}")
        stream = client.jetstream()
        await stream.add_stream(name="bench", subjects=["bench"], storage=StorageType.FILE)
        await client.close()

    asyncio.run(make())


def _publish(task: PeerTask) -> None:
    async def publish() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{task.port}")
        stream = client.jetstream()
        for first in range(0, task.events, _BATCH):
            count = min(_BATCH, task.events - first)
            await asyncio.gather(*(stream.publish("bench", task.body) for _ in range(count)))
        await client.close()

    asyncio.run(publish())


def _consume(task: PeerTask) -> float:
    async def consume() -> float:
        consumed = Consumed(task.events)
        client = await nats.connect(f"nats://127.0.0.1:{task.port}")
        subscription = await client.jetstream().pull_subscribe("bench", durable="reader")
        while True:
            try:
                messages = await subscription.fetch(_BATCH, timeout=1)
            except TimeoutError:
                continue
            for message in messages:
                await message.ack()
            if consumed.note(len(messages)):
                await client.flush()
                rate = consumed.rate()
                await client.close()
                return rate

    return asyncio.run(consume())


NATS = PeerBroker(
    "NATS JetStream", "nats-server", "in the file (synced every 2 minutes)", _start, _prepare, _publish, _consume
)
