"""R1, R5 and R6: a topic to Redis, compared with the engine alone."""

import statistics
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import anyio
import redis

from bench.broker_process import broker_process, resident_bytes
from bench.engines import bridge, fill, rate_of, redis_server
from bench.programs import folder
from bench.settings import BenchSettings
from bridge.central import Record
from bridge.engines.redis import RedisDestination
from bridge.engines.redis_batch import packed
from bridge.engines.redis_link import RedisLogin
from bridge.engines.redis_scripts import APPEND, OPEN
from bridge.envelope import OutgoingEnvelope
from demo.ports import free_port
from tweetwire import Client, Event, Receipt, SyncClient

__all__ = ["AWAY_RATE", "AWAY_S", "REPLICATED_RATE", "Away", "ToRedis", "away", "replicated", "to_redis"]

_BATCH: Final = 1000
REPLICATED_RATE: Final = 1000
_REPLICATED_S: Final = 10
AWAY_S: Final = 60
AWAY_RATE: Final = 20_000
_BEFORE: Final = 800_000
"""The events of R6 before the centre goes away. They fill the broker's memory for recent events beforehand."""
_STEPS: Final = 50
"""The publishes of R6 a second. Each has `AWAY_RATE / _STEPS` events."""


class ToRedis(NamedTuple):
    """The rates (/s) of one round: the bridge, the script alone, and pipelined XADD, all with the same fields."""

    bridge: float
    script: float
    xadd: float


def to_redis(settings: BenchSettings) -> ToRedis:
    """R1: carry a backlog of a topic, and write the same entries to the same server without broker and bridge."""
    events = settings.events
    with folder() as home, redis_server(home) as central, broker_process("--topic", "bench") as (port, _):
        fill(port, "bench", events, settings.size)
        with bridge(home, port, f"bench -> redis://127.0.0.1:{_port(central)}/bench"):
            carried = rate_of(lambda: int(central.xlen("bench")), events)
        records = _records(port, events)
        return ToRedis(carried, _by_script(central, records), _by_xadd(central, records))


def _records(port: int, events: int) -> list[list[Record]]:
    """Return the records of a topic in batches, as the bridge makes them."""
    with SyncClient(f"127.0.0.1:{port}", name="bench") as client:
        envelope = OutgoingEnvelope("bench", client.broker_identity or "", "centre")
        pages = (client.read("bench", first, limit=_BATCH) for first in range(0, min(events, 100 * _BATCH), _BATCH))
        return [envelope.records(page.events) for page in pages]


def _by_script(central: "redis.Redis", batches: Sequence[Sequence[Record]]) -> float:
    """Call the script of the engine with batches that are ready."""
    keys = ("alone", "{alone}:tweetwire")
    script = central.register_script(APPEND)
    centre = central.register_script(OPEN)(keys=keys, args=["b/t", "centre", "yes"])[2]
    ready = [(packed(batch), batch[-1].offset) for batch in batches]
    kept = b""
    began = time.perf_counter()
    for batch, last in ready:
        _, kept = script(keys=keys, args=["b/t", kept, centre, batch, "0", "yes", last, ""])
    return sum(map(len, batches)) / (time.perf_counter() - began)


def _by_xadd(central: "redis.Redis", batches: Sequence[Sequence[Record]]) -> float:
    """Add the same fields with pipelines of XADD."""
    ready: list[list[dict[Any, Any]]] = [
        [dict(zip(one.fields[::2], one.fields[1::2], strict=True)) | {"data": one.value} for one in batch]
        for batch in batches
    ]
    began = time.perf_counter()
    for entries in ready:
        pipeline = central.pipeline(transaction=False)
        for entry in entries:
            pipeline.xadd("xadd", entry)
        pipeline.execute()
    return sum(map(len, batches)) / (time.perf_counter() - began)


# R5


def replicated(settings: BenchSettings) -> tuple[float, float]:
    """R5: return the p50 in ms from publish to `replicated` at 1,000/s, and that of one append of the engine alone."""
    with folder() as home, redis_server(home) as central, broker_process("--topic", "bench") as (port, _):
        with bridge(home, port, f"bench -> redis://127.0.0.1:{_port(central)}/bench?as=centre"):
            ours = anyio.run(_publish_at_rate, port, settings.size, backend_options={"use_uvloop": True})
        alone = anyio.run(
            _append_at_rate, _port(central), _records(port, _BATCH)[0], backend_options={"use_uvloop": True}
        )
    return 1000 * statistics.median(ours), 1000 * statistics.median(alone)


async def _publish_at_rate(port: int, size: int) -> list[float]:
    took: list[float] = []
    began = 0.0

    def note(receipt: Receipt) -> None:
        now = time.perf_counter()
        if receipt.durability != "replicated":
            raise AssertionError(f"an event was confirmed as {receipt.durability}")
        took.extend(now - began - (len(took) + at) / REPLICATED_RATE for at in range(1, receipt.count + 1))

    msg = "x" * max(1, size - 110)
    async with Client(f"127.0.0.1:{port}", name="bench") as client:
        while not await client.marks("bench"):
            await anyio.sleep(0.05)
        async with client.publisher("bench", on_confirm=note, after="centre", within_s=15) as publisher:
            began = time.perf_counter()
            for number in range(REPLICATED_RATE * _REPLICATED_S):
                due = began + (number + 1) / REPLICATED_RATE
                if (left := due - time.perf_counter()) > 0:
                    await anyio.sleep(left)
                await publisher.publish(Event(id=f"event-{number}", msg=msg))
    return took


async def _append_at_rate(port: int, records: Sequence[Record]) -> list[float]:
    destination = RedisDestination(RedisLogin("127.0.0.1", port), "alone", "bench")
    await destination.open("b")
    took: list[float] = []
    for number, record in enumerate(records):
        began = time.perf_counter()
        await destination.append([record])
        took.append(time.perf_counter() - began)
        if number % 10 == 0:
            await anyio.sleep(1 / REPLICATED_RATE)
    await destination.aclose()
    return took


# R6


class Away(NamedTuple):
    """Report one round of R6.

    Attributes:
        published: The share of the offered events that was confirmed, in percent.
        memory: The growth of the broker's memory, in MB.
        caught_up: The rate of catching up, in percent of the rate of a backlog in the same round.
    """

    published: float
    memory: float
    caught_up: float


def away(settings: BenchSettings) -> Away:
    """R6: publish while Redis is stopped, start it again, and let the bridge catch up."""
    central = free_port()
    address = f"redis://127.0.0.1:{central}"
    with folder() as home, broker_process("--topic", "bench") as (port, pid):
        with bridge(home, port, f"bench -> {address}/bench"):
            with redis_server(home, port=central) as client:
                fill(port, "bench", _BEFORE, settings.size)
                rate_of(lambda: int(client.xlen("bench")), _BEFORE)
            before = resident_bytes(pid)
            published, most = _publish_without(port, pid, settings.size)
            with redis_server(home, port=central) as client:
                caught_up = rate_of(lambda: int(client.xlen("bench")) - _BEFORE, published)
        with redis_server(home, port=central) as client, bridge(home, port, f"bench -> {address}/again"):
            usual = rate_of(lambda: int(client.xlen("again")), _BEFORE + published)
        return Away(100 * published / (AWAY_S * AWAY_RATE), (most - before) / 1e6, 100 * caught_up / usual)


def _publish_without(port: int, pid: int, size: int) -> tuple[int, int]:
    """Publish at a fixed rate while the centre is away. Return the confirmed events, and the most memory in bytes."""
    msg, share = "x" * max(1, size - 110), AWAY_RATE // _STEPS
    published = most = 0
    with SyncClient(f"127.0.0.1:{port}", name="bench") as client:
        began = time.perf_counter()
        for step in range(AWAY_S * _STEPS):
            left = began + step / _STEPS - time.perf_counter()
            if left > 0:
                time.sleep(left)
            elif left < -1 / _STEPS and time.perf_counter() - began > AWAY_S:
                break
            client.publish_many("bench", (Event(id=f"away-{step}-{at}", msg=msg) for at in range(share)))
            published += share
            if step % _STEPS == 0:
                most = max(most, resident_bytes(pid))
    return published, max(most, resident_bytes(pid))


def _port(client: "redis.Redis") -> int:
    return int(client.connection_pool.connection_kwargs["port"])
