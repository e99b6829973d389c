"""Every engine keeps the contract of a registry: the one in memory, and real servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from bridge.central import HEARTBEAT_BYTES_MAX, Registry
from tests.bridge.engines.conftest import Engine

pytestmark = pytest.mark.anyio

A, B, C = "A" * 22, "B" * 22, "C" * 22


@asynccontextmanager
async def registry_of(engine: Engine, **options: float) -> AsyncIterator[Registry]:
    registry = engine.registry(**options)
    await registry.open()
    try:
        yield registry
    finally:
        await registry.aclose()


async def contents(registry: Registry) -> dict[str, bytes]:
    return {one.broker: one.heartbeat for one in await registry.sightings()}


async def test_a_new_registry_is_empty(engine: Engine) -> None:
    async with registry_of(engine) as registry:
        assert await registry.sightings() == []


async def test_each_broker_sees_the_newest_heartbeat_of_all(engine: Engine) -> None:
    async with registry_of(engine) as first, registry_of(engine) as second:
        await first.announce(A, b"a1")
        await second.announce(B, b"b1")
        assert await contents(first) == {A: b"a1", B: b"b1"}
        await first.announce(A, b"a2")
        assert await contents(second) == {A: b"a2", B: b"b1"}
        assert await contents(first) == await contents(second)


async def test_the_age_of_a_heartbeat_grows_by_the_engines_clock(engine: Engine) -> None:
    async with registry_of(engine) as registry:
        await registry.announce(A, b"a")
        (before,) = await registry.sightings()
        assert 0 <= before.age_s < 60
        await anyio.sleep(0.05)
        await registry.announce(B, b"b")
        found = {one.broker: one.age_s for one in await registry.sightings()}
        assert found[A] >= found[B] + 0.04
        assert found[A] > before.age_s


async def test_a_heartbeat_survives_a_new_connection(engine: Engine) -> None:
    async with registry_of(engine) as registry:
        await registry.announce(A, "π\n\0".encode())
        await registry.aclose()
        await registry.open()
        assert await contents(registry) == {A: "π\n\0".encode()}
        await registry.announce(A, b"later")
        assert await contents(registry) == {A: b"later"}


async def test_the_largest_heartbeat_is_taken(engine: Engine) -> None:
    async with registry_of(engine) as registry:
        await registry.announce(A, b"x" * HEARTBEAT_BYTES_MAX)
        assert await contents(registry) == {A: b"x" * HEARTBEAT_BYTES_MAX}


async def test_old_heartbeats_go_and_the_broker_can_come_back(engine: Engine) -> None:
    async with registry_of(engine, kept_s=0.3) as registry:
        await registry.announce(A, b"a")
        with anyio.fail_after(60):
            while A in await contents(registry):
                await registry.announce(B, b"b")
                await anyio.sleep(0.02)
        await registry.announce(A, b"again")
        assert (await contents(registry))[A] == b"again"


async def test_of_more_brokers_than_allowed_the_oldest_go(engine: Engine) -> None:
    async with registry_of(engine, brokers_max=2) as registry:
        for broker in (A, B, C):
            await registry.announce(broker, broker.encode())
            # The servers measure time in milliseconds.
            await anyio.sleep(0.002)
        assert await contents(registry) == {B: B.encode(), C: C.encode()}
        await registry.announce(A, b"a")
        assert sorted(await contents(registry)) == [A, C]
