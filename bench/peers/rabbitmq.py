"""The peer RabbitMQ: a durable queue, persistent messages, publisher confirms, acknowledgements of several at once."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import aio_pika

from bench.peers.peer import Consumed, PeerBroker, PeerTask, server
from demo.ports import free_port

__all__ = ["RABBITMQ"]

_BATCH = 1000
_ACK_EVERY = 200


def _start(home: Path, port: int) -> Iterator[None]:
    # A separate name server in the foreground, because the one that Erlang starts never ends.
    names = free_port()
    environment = os.environ | {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(home / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
    }
    with (
        server(home / "names.log", names, "epmd", "-port", names, "-address", "127.0.0.1", environment=environment),
        server(home / "server.log", port, "/usr/lib/rabbitmq/bin/rabbitmq-server", environment=environment),
    ):
        yield


def _url(task: PeerTask) -> str:
    return f"amqp://127.0.0.1:{task.port}/"


def _prepare(task: PeerTask) -> None:
    async def make() -> None:
        async with await aio_pika.connect(_url(task)) as connection:
            channel = await connection.channel()
            await channel.declare_queue("bench", durable=True)

    asyncio.run(make())


def _publish(task: PeerTask) -> None:
    async def publish() -> None:
        async with await aio_pika.connect(_url(task)) as connection:
            channel = await connection.channel(publisher_confirms=True)
            message = aio_pika.Message(task.body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            for first in range(0, task.events, _BATCH):
                count = min(_BATCH, task.events - first)
                await asyncio.gather(
                    *(channel.default_exchange.publish(message, routing_key="bench") for _ in range(count))
                )

    asyncio.run(publish())


def _consume(task: PeerTask) -> float:
    async def consume() -> float:
        consumed = Consumed(task.events)
        async with await aio_pika.connect(_url(task)) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=_BATCH)
            queue = await channel.declare_queue("bench", durable=True)
            async with queue.iterator() as messages:
                async for message in messages:
                    is_last = consumed.note(1)
                    if is_last or consumed.received % _ACK_EVERY == 0:
                        await message.ack(multiple=True)
                    if is_last:
                        return consumed.rate()
        raise RuntimeError("RabbitMQ closed the queue")

    return asyncio.run(consume())


RABBITMQ = PeerBroker(
    "RabbitMQ", "rabbitmq-server", "on the disk (durable, confirms)", _start, _prepare, _publish, _consume
)
