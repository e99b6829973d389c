"""Run a broker under load in this process, and keep a ledger of confirmed events and their places in the record of calls.

There are two topics: events of ``kept`` stay, and events of ``settled`` are removed once they are settled. Both are
published with sequences, as fast as they are confirmed, and refused events are sent again. A subscription to ``settled``
acks most of its events.
"""

import json
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final
from unittest import mock

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from broker import keeper
from broker import serve as serving
from broker.settings import BrokerSettings

__all__ = ["KEPT", "SETTLED", "SUBSCRIPTION", "Ledger", "Peer", "load", "serving_broker", "small_files"]

KEPT: Final = "kept"
SETTLED: Final = "settled"
SUBSCRIPTION: Final = "reader"
LINE_BYTES_MAX: Final = 1 << 20
PATIENCE_S: Final = 120.0


@dataclass
class Ledger:
    """The confirmed events by topic, as (place in the record, offset, sequence), and the acked ones, as (place, offset).

    Places only grow. An ack counts from the time when it was sent, since the broker may settle the event from then on.
    """

    confirmed: dict[str, list[tuple[int, int, int]]] = field(default_factory=lambda: {KEPT: [], SETTLED: []})
    acked: list[tuple[int, int]] = field(default_factory=list)
    subscribed_at: int = 0
    refused: int = 0

    def confirmed_by(self, place: int, topic: str) -> dict[int, int]:
        """Return {offset: sequence} of the events confirmed up to a place."""
        entries = self.confirmed[topic]
        return {offset: sequence for _, offset, sequence in entries[: bisect_right(entries, place, key=lambda e: e[0])]}

    def acked_by(self, place: int) -> set[int]:
        """Return the offsets that may have been settled at a place."""
        return {offset for _, offset in self.acked[: bisect_right(self.acked, place, key=lambda e: e[0])]}


@asynccontextmanager
async def small_files() -> AsyncIterator[None]:
    """Make the broker write snapshots, sync its journal and remove old segments within seconds instead of days."""
    before = keeper.JOURNAL_BYTES, keeper.SYNC_EVERY_S, keeper.FORGET_EVERY_S
    keeper.JOURNAL_BYTES, keeper.SYNC_EVERY_S, keeper.FORGET_EVERY_S = 6_000, 0.02, 0.02  # type: ignore[misc]
    try:
        yield
    finally:
        keeper.JOURNAL_BYTES, keeper.SYNC_EVERY_S, keeper.FORGET_EVERY_S = before  # type: ignore[misc]


@asynccontextmanager
async def serving_broker(folder: Path) -> AsyncIterator[int]:
    """Serve `folder` in this event loop. Yields the port."""
    started = anyio.Event()
    ports: list[int] = []

    def ready(_: str, address: str) -> None:
        ports.append(int(address.rpartition(":")[2]))
        started.set()

    settings = BrokerSettings(
        data_dir=folder, port=0, metrics_port=0, segment_bytes=8 << 10, reserve_bytes=64 << 10, recent_bytes=1 << 20
    )
    stop = anyio.Event()
    with mock.patch.object(serving, "ready", ready):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serving.serve, settings, stop)
            with anyio.fail_after(PATIENCE_S):
                await started.wait()
            yield ports[0]
            stop.set()


async def load(
    port: int,
    ledger: Ledger,
    place: Callable[[], int],
    dice: Random,
    events: int,
    on_subscribed: Callable[[], None] = lambda: None,
) -> None:
    """Publish `events` to each topic and consume one topic, until all events are confirmed and acked."""
    with anyio.fail_after(PATIENCE_S):
        async with await Peer.connect(port) as settler:
            await settler.say("hello settler", f"sub {SETTLED} as={SUBSCRIPTION} prefetch=20 tries=1000000 create")
            await settler.say(f"retain {SETTLED} settled=yes", f"checkpoint {SETTLED} x y")
            # The last reply comes after a sync of the journal, which then also has the subscription.
            while not (await settler.hear()).startswith("+OK checkpoint"):
                pass
            ledger.subscribed_at = place()
            on_subscribed()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_settle, settler, ledger, place, dice, events)
                for topic in (KEPT, SETTLED):
                    tasks.start_soon(_publish, port, topic, ledger, place, dice, events)


class Peer:
    """A connection that sends and receives lines."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._lines = BufferedByteReceiveStream(stream)

    @classmethod
    async def connect(cls, port: int) -> "Peer":
        peer = cls(await anyio.connect_tcp("127.0.0.1", port))
        await peer.hear()
        return peer

    async def __aenter__(self) -> "Peer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def say(self, *lines: str) -> None:
        await self._stream.send("".join(f"{line}\n" for line in lines).encode())

    async def hear(self) -> str:
        return (await self._lines.receive_until(b"\n", LINE_BYTES_MAX)).decode()


async def _publish(port: int, topic: str, ledger: Ledger, place: Callable[[], int], dice: Random, events: int) -> None:
    async with await Peer.connect(port) as peer:
        done = 0
        while done < events:
            count = min(events - done, dice.choice((1, 1, 5, 30)))
            bodies = [_event(topic, sequence, dice) for sequence in range(done, done + count)]
            await peer.say(*(f"pub {topic} {body}" for body in bodies))
            heard, is_refused = 0, False
            while heard < count:
                reply = await peer.hear()
                if reply.startswith("+OK pub"):
                    first, _, last = reply.split()[3].partition("-")
                    for offset in range(int(first), int(last or first) + 1):
                        ledger.confirmed[topic].append((place(), offset, done))
                        heard += 1
                        done += 1
                elif reply.startswith("+OK dup"):
                    raise AssertionError(f"what was refused or never sent is known already: {reply}")
                else:
                    assert reply.startswith(("-ERR disk", "-ERR out_of_sequence")), reply
                    ledger.refused += 1
                    heard += 1
                    is_refused = True
            if is_refused:
                await anyio.sleep(0.01)


async def _settle(peer: Peer, ledger: Ledger, place: Callable[[], int], dice: Random, events: int) -> None:
    acked: set[int] = set()
    while len(acked) < events:
        line = await peer.hear()
        if not line.startswith("{"):
            continue
        offset = json.loads(line)["offset"]
        if dice.random() < 0.1:
            await peer.say(f"nack {SETTLED} @{offset}")
        else:
            ledger.acked.append((place(), offset))
            acked.add(offset)
            await peer.say(f"ack {SETTLED} @{offset}")


def _event(topic: str, sequence: int, dice: Random) -> str:
    text = "x" * dice.choice((10, 100, 700))
    return f'{{"id":"{sequence}","priority":{dice.randrange(4)},"msg":"{text}","producer":"{topic}","sequence":{sequence}}}'
