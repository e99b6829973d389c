"""Appends to JetStream write each record once: the connection is cut, the server is killed, or the leader changes."""

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread
import nats.errors
import pytest

from bridge.central import EngineUnreachable, Found, PositionMoved
from bridge.engines.jetstream import JetStreamDestination
from bridge.engines.jetstream_link import NatsLogin
from tests.bridge.engines.jetstream_engine import JetStreamEngine
from tests.bridge.records import record
from tests.support.cutting_proxy import CuttingProxy
from tests.support.nats_servers import NatsCluster, NatsServer
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

A = "A" * 22


def numbers_of(engine: JetStreamEngine) -> list[int]:
    return [int(message.headers["ce-offset"]) for message in engine.messages()]


async def found_by(engine: JetStreamEngine) -> Found:
    one = JetStreamDestination(engine.login, engine.stream, "orders")
    found = await one.open(A)
    await one.aclose()
    return found


class Appender:
    """Appends records 0, 1, 2 … as a route does: after an error, it opens again and continues after the position."""

    def __init__(self, engine: JetStreamEngine, seed: int, **options: Any) -> None:
        self.next = 0
        self.failures = 0
        self.moves = 0
        self._random = random.Random(seed)
        self._destination = JetStreamDestination(engine.login, engine.stream, "orders", **options)

    async def run(self, until_next: int, seconds: float = 0.0) -> None:
        """Append until `until_next` records are there and `seconds` have passed."""
        end = time.monotonic() + seconds
        while True:
            try:
                found = await self._destination.open(A)
                self.next = 0 if found.position is None else found.position + 1
                while self.next < until_next or time.monotonic() < end:
                    count = self._random.choice([1, 2, 50, 700])
                    await self._destination.append([record(self.next + at) for at in range(count)])
                    self.next += count
            except PositionMoved:
                self.moves += 1
            except EngineUnreachable:
                self.failures += 1
                await anyio.sleep(0.05)
            else:
                await self._destination.aclose()
                return


@pytest.mark.parametrize(
    ("direction", "count", "step"),
    # The server keeps at most 50 batches that are not complete, each for 10 s. So do not cut a batch at every byte.
    [("reply", 1, 1), ("reply", 3, 1), ("request", 1, 7), ("request", 3, 31)],
)
async def test_an_append_that_is_cut_at_any_byte_is_neither_lost_nor_written_twice(
    jetstream_engine: JetStreamEngine, nats_server: NatsServer, direction: str, count: int, step: int
) -> None:
    written = 0
    cuts = 0
    async with CuttingProxy(nats_server.port, b"Tweetwire-Position") as proxy:
        one = JetStreamDestination(NatsLogin((("127.0.0.1", proxy.port),), timeout_s=20), "ORDERS", "orders")
        for cut in range(0, 10_000, step):
            proxy.cut_at = proxy.request_cut_at = None
            found = await one.open(A)
            start = 0 if found.position is None else found.position + 1
            assert start in {written, written + count}
            written = start
            if direction == "reply":
                proxy.cut_at = cut
            else:
                proxy.request_cut_at = cut
            with suppress(EngineUnreachable):
                await one.append([record(start + at) for at in range(count)])
                written += count
            if proxy.cuts == cuts:
                break
            cuts = proxy.cuts
        await one.aclose()
    assert cuts > 25
    assert numbers_of(jetstream_engine) == list(range(written))


async def test_kills_of_the_server_during_appends_lose_and_double_nothing(
    jetstream_engine: JetStreamEngine, nats_server: NatsServer
) -> None:
    chance = random.Random(5)
    appender = Appender(jetstream_engine, 6)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(appender.run, 5000, 12.0)
        for _ in range(8):
            await anyio.sleep(0.1 + chance.random())
            nats_server.kill()
            await anyio.to_thread.run_sync(nats_server.start)
    assert appender.failures >= 8
    assert numbers_of(jetstream_engine) == list(range(appender.next))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers."""
    servers = NatsCluster(tmp_path_factory.mktemp("cluster"))
    try:
        servers.start()
        yield servers
    finally:
        servers.kill()


def leader_of(engine: JetStreamEngine) -> str:
    """Return the name of the server that leads the stream, "" while there is none."""

    async def work(context: Any) -> str:
        try:
            return (await context.stream_info(engine.stream)).cluster.leader or ""
        except nats.errors.Error:
            return ""

    return str(engine.run(work))


def change_leader(engine: JetStreamEngine) -> str:
    """Make another server the leader of the stream, and return its name."""

    async def step_down(context: Any) -> bool:
        try:
            await context._api_request(f"$JS.API.STREAM.LEADER.STEPDOWN.{engine.stream}", timeout=5)
        except nats.errors.Error:
            return False
        return True

    before = until(lambda: leader_of(engine), 60)
    until(lambda: engine.run(step_down), 60)
    return until(lambda: (found := leader_of(engine)) != before and found, 60) or ""


@pytest.mark.parametrize("subject", ["tw.{broker}.{topic}.{key}", "alone"])
async def test_three_replicas_lose_and_double_nothing_when_the_leader_changes_or_is_killed(
    cluster: NatsCluster, subject: str
) -> None:
    engine = JetStreamEngine(cluster, timeout_s=3)
    if subject == "alone":
        engine.make(f"tw.{A}.orders.>", num_replicas=3)
    first, second = Appender(engine, 1, replicas=3), Appender(engine, 2, replicas=3)
    await first.run(100)
    try:
        centre = (await found_by(engine)).centre
        async with anyio.create_task_group() as tasks:
            for one in (first, second):
                tasks.start_soon(one.run, 1000, 25.0)
            for round_ in range(4):
                await anyio.sleep(1)
                name = await anyio.to_thread.run_sync(change_leader, engine)
                await anyio.sleep(1)
                leader = next(server for server in cluster.servers if server.name == name)
                leader.kill()
                await anyio.sleep(round_ / 2)
                await anyio.to_thread.run_sync(leader.start)
                await anyio.to_thread.run_sync(until, leader.is_healthy, 60)
        assert first.failures + second.failures >= 4
        assert first.moves + second.moves >= 4
        found = await found_by(engine)
        assert found.centre == centre
        assert found.position is not None
        assert numbers_of(engine) == list(range(found.position + 1))
    finally:
        engine.delete()
