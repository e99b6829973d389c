"""R2: a topic to NATS JetStream, compared with atomic batches by nats-py alone.

Both write messages with the same payload to a stream of one server, in atomic batches of 1,000. The time is that
between the first and the last message of the stream, by the server's timestamps, so the start of the programs does not
count.
"""

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import nats

from bench.broker_process import broker_process
from bench.engines import bridge, fill, nats_server
from bench.programs import folder
from bench.settings import BenchSettings

__all__ = ["to_jetstream"]

_BATCH: Final = 1000


def to_jetstream(settings: BenchSettings) -> tuple[float, float]:
    """R2: return the rates (/s) of one round: the bridge, and nats-py alone."""
    with folder() as home, nats_server(home) as port:
        return _by_bridge(home, port, settings), asyncio.run(_by_nats_py(port, settings))


def _by_bridge(home: Path, port: int, settings: BenchSettings) -> float:
    with broker_process("--topic", "bench") as (broker, _):
        fill(broker, "bench", settings.events, settings.size)
        with bridge(home, broker, f"bench -> nats://127.0.0.1:{port}/BENCH"):
            return asyncio.run(_rate_of(port, "BENCH", settings.events))


async def _by_nats_py(port: int, settings: BenchSettings) -> float:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    await client.jetstream().add_stream(name="ALONE", subjects=["alone"], allow_atomic=True)
    payload = json.dumps("x" * max(1, settings.size - 110)).encode()
    count = settings.events
    for first in range(0, count, _BATCH):
        size = min(_BATCH, count - first)
        for number in range(1, size):
            headers = {"Nats-Batch-Id": str(first), "Nats-Batch-Sequence": str(number)}
            await client.publish("alone", payload, headers=headers)
        headers = {"Nats-Batch-Id": str(first), "Nats-Batch-Sequence": str(size), "Nats-Batch-Commit": "1"}
        await client.request("alone", payload, timeout=60, headers=headers)
    await client.close()
    return await _rate_of(port, "ALONE", count)


async def _rate_of(port: int, stream: str, count: int) -> float:
    """Wait until a stream has all messages, and return how many it got in a second."""
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    state: dict[str, Any] = {}
    while state.get("messages", 0) < count:
        await asyncio.sleep(0.2)
        answer = await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=60)
        state = json.loads(answer.data).get("state", {})
    await client.close()
    first, last = (datetime.fromisoformat(state[name][:26].rstrip("Z") + "+00:00") for name in ("first_ts", "last_ts"))
    return count / (last - first).total_seconds()
