"""``python -m bench.soak``: clients that connect, ack, nack, stall and vanish at random, while no event may be lost.

All clients share five durable subscriptions of one topic. At the end all clients only ack. Then each subscription must have
settled + dead = published, with nothing pending, in flight, or delivered to two owners at once. The broker's memory must not
have grown in the second half.
"""

import random
import sys
import time
from contextlib import suppress

import anyio
from anyio.abc import SocketStream
from pydantic import Field
from pydantic_settings import BaseSettings
from rich.console import Console

from bench.broker_process import broker_process, resident_bytes
from tweetwire import Client, Event
from tweetwire.protocol.errors import StartError
from tweetwire.protocol.units import format_bytes
from tweetwire.runtime.flags import read_flags
from tweetwire.runtime.kinds import Seconds
from tweetwire.runtime.program import settings_config

SUBSCRIPTIONS = 5
# The memory for the newest lines is full within a minute, so any later growth is a leak.
RECENT = "16MiB"
GROWTH_MAX = 32 << 20
SETTLE_S = 120

tell = Console(stderr=True, highlight=False).print


class SoakSettings(BaseSettings):
    """Lets clients misbehave for a while, and checks that no event was lost. The exit status is 1 if an event was lost."""

    model_config = settings_config("python -m bench.soak")

    duration: Seconds = Field("10m", validate_default=True, description="how long clients misbehave")
    clients: int = Field(50, ge=SUBSCRIPTIONS, description="connections at a time")
    rate: int = Field(2000, ge=1, description="events published a second")
    seed: int = Field(1, description="seed of the clients' random behaviour")


class Soak:
    """One run against one broker."""

    def __init__(self, settings: SoakSettings, port: int, pid: int) -> None:
        self.settings = settings
        self.port = port
        self.pid = pid
        self.published = 0
        self.done: dict[str, int] = dict.fromkeys(("acked", "nacked", "stalled", "vanished"), 0)
        self.memory: list[int] = []
        self.is_calm = False
        self._random = random.Random(settings.seed)

    async def run(self) -> bool:
        """Run, and return whether all went well."""
        address = f"127.0.0.1:{self.port}"
        async with Client(address, name="soak") as client, anyio.create_task_group() as tasks:
            for number in range(SUBSCRIPTIONS):
                await self._make(number)
            for number in range(self.settings.clients):
                tasks.start_soon(self._misbehave, number)
            tasks.start_soon(self._watch)
            await self._publish(client)
            self.is_calm = True
            is_settled = await self._settled(client)
            tasks.cancel_scope.cancel()
        return is_settled and self._is_flat()

    async def _make(self, number: int) -> None:
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            await stream.send(f"sub soak as=s{number} tries=1000000 timeout=2s create\nquit\n".encode())
            with suppress(anyio.EndOfStream):
                while True:
                    await stream.receive()

    async def _publish(self, client: Client) -> None:
        end = time.monotonic() + self.settings.duration
        async with client.publisher("soak") as publisher:
            while time.monotonic() < end:
                batch = max(1, self.settings.rate // 20)
                events = [Event(id=str(self.published + n), priority=n % 5, msg="x" * 100) for n in range(batch)]
                await publisher.publish_many(events)
                self.published += batch
                await anyio.sleep(0.05)

    async def _misbehave(self, number: int) -> None:
        while True:
            with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
                    prefetch = self._random.choice((1, 10, 100))
                    await stream.send(
                        f"hello c{number}\nsub soak as=s{number % SUBSCRIPTIONS} prefetch={prefetch}\n".encode()
                    )
                    await self._consume(stream)
            await anyio.sleep(self._random.random() / 5)

    async def _consume(self, stream: SocketStream) -> None:
        """Handle arriving events until this connection is dropped."""
        rest = b""
        while True:
            *lines, rest = (rest + await stream.receive()).split(b"\n")
            offsets = [
                line[line.index(b'"offset":') + 9 :].split(b",", 1)[0] for line in lines if line.startswith(b"{")
            ]
            what = "ack" if self.is_calm else self._random.choices(("ack", "nack", "stall", "vanish"), (90, 7, 1, 2))[0]
            if what == "vanish":
                self.done["vanished"] += 1
                return
            if what == "stall":
                self.done["stalled"] += 1
                await anyio.sleep(self._random.random() * 4)
            elif what == "nack" and offsets:
                self.done["nacked"] += 1
                await stream.send(b'nack soak @%b "no"\n' % offsets.pop())
            if offsets:
                self.done["acked"] += len(offsets)
                await stream.send(b"ack soak @%b\n" % b" @".join(offsets))

    async def _settled(self, client: Client) -> bool:
        wanted = self.published
        deadline = time.monotonic() + SETTLE_S
        while True:
            found = (await client.stats())["topics"]["soak"]["subscriptions"]
            if all(
                f["settled"] + f["dead"] == wanted and not f["pending"] and not f["in_flight"] for f in found.values()
            ):
                tell(f"{wanted:,} events, {SUBSCRIPTIONS} subscriptions: all settled once; {self.done}")
                return True
            if time.monotonic() > deadline:
                tell(f"not settled after {SETTLE_S} s: published {wanted:,}, {found}")
                return False
            await anyio.sleep(0.2)

    async def _watch(self) -> None:
        while True:
            self.memory.append(resident_bytes(self.pid))
            if len(self.memory) % 30 == 0:
                tell(
                    f"{len(self.memory)} s: published {self.published:,}, memory {format_bytes(self.memory[-1])}, {self.done}"
                )
            await anyio.sleep(1)

    def _is_flat(self) -> bool:
        half = len(self.memory) // 2
        growth = max(self.memory[half:]) - max(self.memory[half // 2 : half] or self.memory)
        tell(
            f"memory: {format_bytes(max(self.memory))} at most, {growth / (1 << 20):+.1f} MiB from the second quarter on"
        )
        return growth <= GROWTH_MAX


def main() -> int:
    """Run the soak. Return 0 if no event was lost and memory stayed flat, 1 if not, 2 for a wrong setting."""
    try:
        settings = read_flags(SoakSettings, sys.argv[1:])
    except StartError as error:
        tell(str(error))
        return 2
    with broker_process("--recent-bytes", RECENT) as (port, pid):
        is_well = anyio.run(Soak(settings, port, pid).run, backend_options={"use_uvloop": True})
    tell("[green]nothing lost, memory flat[/]" if is_well else "[red]failed[/]")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
