"""B3: measure the same as B2, but with a `tweetwire.Client` at both ends, each in a separate process."""

import subprocess
import sys
import time

import anyio

from bench.broker_process import broker_process
from bench.settings import BenchSettings
from tweetwire import Client, Event

__all__ = ["through_clients"]

CHUNK = 5000


def through_clients(settings: BenchSettings) -> float:
    """B3: return the events a second from the first publish to the last ack."""
    with broker_process("--topic", "bench") as (port, _):
        command = [sys.executable, "-m", "bench.clients", str(port), str(settings.events), str(settings.size)]
        with subprocess.Popen(command) as publisher:
            took = anyio.run(_consume, port, settings.events, backend_options={"use_uvloop": True})
            publisher.wait(60)
        return settings.events / took


async def _consume(port: int, events: int) -> float:
    async with Client(f"127.0.0.1:{port}", name="reader") as client:
        subscription = await client.subscribe("bench", as_="reader", from_="earliest", prefetch=5000)
        await client.publish("ready", Event(id="go", msg=None))
        received, began = 0, 0.0
        async for batch in subscription:
            began = began or time.perf_counter()
            received += len(batch)
            await subscription.ack(batch)
            if received == events:
                break
        await client.ping()
        return time.perf_counter() - began


async def _publish(port: int, events: int, size: int) -> None:
    text = "x" * max(1, size - 110)
    async with Client(f"127.0.0.1:{port}", name="publisher") as client:
        ready = await client.subscribe("ready", from_="earliest", create=True)
        await anext(ready)
        async with client.publisher("bench", window=20_000) as publisher:
            for first in range(0, events, CHUNK):
                last = min(first + CHUNK, events)
                await publisher.publish_many(
                    Event(id=f"event-{n}", priority=n % 7, msg=text) for n in range(first, last)
                )


if __name__ == "__main__":
    _port, _events, _size = map(int, sys.argv[1:4])
    anyio.run(_publish, _port, _events, _size, backend_options={"use_uvloop": True})
