"""``python -m bench.jetstream [EVENTS]``: how fast a topic goes to NATS JetStream, beside atomic batches by nats-py alone.

Both write messages with the same payload to a stream of one server, in atomic batches of 1,000. The time is that between the
first and the last message of the stream, as the server dates them, so the start of the programs does not count.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import nats

from bench.broker_process import broker_process
from bench.programs import folder
from demo.ports import free_port
from tweetwire import Event, SyncClient
from tweetwire.runtime.launching import ProgramProcess, module_argv

_EVENTS: Final = 200_000
_BATCH: Final = 1000
_ROUNDS: Final = 3
_MSG: Final = {"text": "x" * 180}
_NOT_FOUND: Final = "nats-server is missing; `make engines` installs it (needs Go)"


def main(words: list[str]) -> None:
    """Measure some rounds and print each."""
    count = int(words[0]) if words else _EVENTS
    for _ in range(_ROUNDS):
        with folder() as home, _nats(home) as port:
            bridge = _by_bridge(home, port, count)
            alone = asyncio.run(_by_nats_py(port, count))
        print(f"bridge {bridge:,.0f} events/s, nats-py alone {alone:,.0f} messages/s, ratio {bridge / alone:.0%}")


@contextmanager
def _nats(home: Path) -> Iterator[int]:
    engines = os.environ.get("TWEETWIRE_ENGINES") or Path.home() / ".cache" / "tweetwire" / "engines"
    executable = shutil.which("nats-server", path=str(Path(engines) / "bin"))
    if executable is None:
        sys.exit(_NOT_FOUND)
    port, monitor = free_port(), free_port()
    words = ("-a", "127.0.0.1", "-p", str(port), "-m", str(monitor), "-js", "-sd", str(home / "nats"))

    def answers() -> str | None:
        try:
            with urlopen(f"http://127.0.0.1:{monitor}/healthz", timeout=5):
                return f"127.0.0.1:{port}"
        except OSError:
            return None

    with ProgramProcess([executable, *words], home / "nats.log", find_address=answers):
        yield port


def _by_bridge(home: Path, port: int, count: int) -> float:
    with broker_process() as (broker, _):
        address = f"127.0.0.1:{broker}"
        with SyncClient(address, name="bench") as client:
            for first in range(0, count, _BATCH):
                events = [Event(id=f"e{number}", msg=_MSG) for number in range(first, min(count, first + _BATCH))]
                client.publish_many("orders", events)
        route = f"orders -> nats://127.0.0.1:{port}/ORDERS"
        words = module_argv("bridge", "--broker", address, "--metrics-port", 0, "--out", route)
        with ProgramProcess(words, home / "bridge.log"):
            return asyncio.run(_rate_of(port, "ORDERS", count))


async def _by_nats_py(port: int, count: int) -> float:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    await client.jetstream().add_stream(name="ALONE", subjects=["alone"], allow_atomic=True)
    payload = json.dumps(_MSG).encode()
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


if __name__ == "__main__":
    main(sys.argv[1:])
