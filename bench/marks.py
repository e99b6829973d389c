"""R7: publishing that waits for a mark, compared with publishing that does not wait.

A separate process moves the mark as a bridge does: it reads the topic, and marks what it has read.
"""

import subprocess
import sys
import time

import anyio

from bench.broker_process import broker_process
from bench.settings import BenchSettings
from tweetwire import Client, Event

__all__ = ["publish_marked"]

CHUNK = 5000


def publish_marked(settings: BenchSettings) -> tuple[float, float]:
    """R7: return the events a second without a mark, and with confirmations that wait for one."""
    plain, marked = (_rate(settings, is_marked=is_marked) for is_marked in (False, True))
    return plain, marked


def _rate(settings: BenchSettings, *, is_marked: bool) -> float:
    with broker_process("--topic", "bench") as (port, _):
        command = [sys.executable, "-m", "bench.marks", str(port), str(settings.events)]
        with subprocess.Popen(command) as marker:
            took = anyio.run(
                _publish, port, settings.events, settings.size, is_marked, backend_options={"use_uvloop": True}
            )
            marker.wait(60)
        return settings.events / took


async def _publish(port: int, events: int, size: int, is_marked: bool) -> float:
    text = "x" * max(1, size - 110)
    async with Client(f"127.0.0.1:{port}", name="publisher") as client:
        while not await client.marks("bench"):
            await anyio.sleep(0.02)
        after = "reader" if is_marked else None
        began = time.perf_counter()
        async with client.publisher(
            "bench", window=20_000, after=after, within_s=20 if is_marked else None
        ) as publisher:
            for first in range(0, events, CHUNK):
                last = min(first + CHUNK, events)
                await publisher.publish_many(Event(id=f"event-{n}", msg=text) for n in range(first, last))
        return time.perf_counter() - began


async def _mark(port: int, events: int) -> None:
    async with Client(f"127.0.0.1:{port}", name="reader") as client, Client(f"127.0.0.1:{port}", name="m") as marking:
        await marking.mark("bench", "reader", 0)
        at = 0
        while at < events:
            page = await client.read("bench", at, limit=10_000, wait_s=5)
            if page.next > at:
                at = page.next
                await marking.mark("bench", "reader", at)


if __name__ == "__main__":
    anyio.run(_mark, int(sys.argv[1]), int(sys.argv[2]), backend_options={"use_uvloop": True})
