"""Streams of Redis and Valkey beyond the contract: ids, foreign writers, refusals, and where the position lies."""

import secrets

import pytest

from bridge.central import EngineRefused, EngineUnreachable
from bridge.engines.redis import RedisDestination, RedisOrigin
from bridge.engines.redis_link import RedisLogin
from tests.bridge.engines.conftest import RedisEngine
from tests.bridge.records import record
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.anyio

A = "A" * 22


async def appended(engine: RedisEngine, *numbers: int, timestamp: int = 1000) -> list[str]:
    """Append records at their offsets, and return the ids of all entries."""
    destination = RedisDestination(engine.login, engine.stream, "orders")
    try:
        await destination.open(A)
        await destination.append([record(number, timestamp=timestamp) for number in numbers])
    finally:
        await destination.aclose()
    return ids(engine)


def ids(engine: RedisEngine) -> list[str]:
    return [id_.decode() for id_, _ in engine.plain.xrange(engine.stream)]


async def test_an_id_is_the_time_and_the_offset_of_the_event(redis_engine: RedisEngine) -> None:
    assert await appended(redis_engine, 0, 1, 7) == ["1000-0", "1001-1", "1007-7"]


async def test_an_event_that_is_sent_again_has_the_same_id(redis_engine: RedisEngine) -> None:
    before = await appended(redis_engine, 0, 1, 2)
    redis_engine.plain.flushall()
    assert await appended(redis_engine, 0, 1, 2) == before


async def test_ids_grow_although_a_clock_was_set_back_or_another_program_writes(redis_engine: RedisEngine) -> None:
    await appended(redis_engine, 5, timestamp=5000)
    await appended(redis_engine, 6, 7, timestamp=1000)
    redis_engine.plain.xadd(redis_engine.stream, {"a": "1"}, id="9000-99")
    await appended(redis_engine, 8, 9, timestamp=1000)
    assert ids(redis_engine) == ["5005-5", "5005-6", "5005-7", "9000-99", "9000-100", "9000-101"]


async def test_an_id_that_none_of_ours_can_follow_is_refused_before_anything_is_written(
    redis_engine: RedisEngine,
) -> None:
    redis_engine.plain.xadd(redis_engine.stream, {"a": "1"}, id=f"{2**64 - 2}-1")
    with pytest.raises(StartError, match="no id of ours can follow it"):
        await appended(redis_engine, 0)
    assert len(ids(redis_engine)) == 1


async def test_the_position_lies_beside_the_stream(redis_engine: RedisEngine) -> None:
    await appended(redis_engine, 0, 1)
    kept = redis_engine.plain.hgetall("{orders}:tweetwire")
    assert set(kept) == {b"id", f"{A}/orders".encode()}
    assert kept[f"{A}/orders".encode()].startswith(b"1 1001-1 2 ")


async def test_a_stream_that_another_program_has_made_again_is_noticed(redis_engine: RedisEngine) -> None:
    await appended(redis_engine, 0, 1, 2)
    redis_engine.plain.delete(redis_engine.stream)
    redis_engine.plain.xadd(redis_engine.stream, {"a": "1"})
    destination = RedisDestination(redis_engine.login, redis_engine.stream, "orders")
    assert (await destination.open(A)).is_replaced
    await destination.aclose()


async def test_one_broker_of_two_gives_a_deleted_stream_its_new_identity(redis_engine: RedisEngine) -> None:
    first = RedisDestination(redis_engine.login, redis_engine.stream, "orders")
    second = RedisDestination(redis_engine.login, redis_engine.stream, "orders")
    await first.open(A)
    await first.append([record(0)])
    await second.open("B" * 22)
    await second.append([record(0)])
    redis_engine.plain.delete(redis_engine.stream)
    centres = []
    for destination, broker in [(first, A), (second, "B" * 22)]:
        assert (await destination.open(broker)).is_replaced
        await destination.forget()
        centres.append((await destination.open(broker)).centre)
        await destination.append([record(0)])
    assert centres[0] == centres[1]
    await first.aclose()
    await second.aclose()


async def test_trim_bounds_the_stream_and_loses_nothing(redis_engine: RedisEngine) -> None:
    destination = RedisDestination(redis_engine.login, redis_engine.stream, "orders", trim=100)
    await destination.open(A)
    for first in range(0, 2000, 100):
        await destination.append([record(number) for number in range(first, first + 100)])
    assert 100 <= redis_engine.plain.xlen(redis_engine.stream) <= 300
    found = await destination.open(A)
    assert (found.position, found.is_replaced) == (1999, False)
    await destination.aclose()


async def test_fields_of_another_program_are_one_object(redis_engine: RedisEngine) -> None:
    redis_engine.plain.xadd(redis_engine.stream, {"amount": "5", "currency": "EUR", "raw": b"\xff"})
    origin = RedisOrigin(redis_engine.login, redis_engine.stream)
    await origin.open("", "", is_exact=True)
    (arrival,) = await origin.read("", 0)
    assert arrival.value == b'{"amount":"5","currency":"EUR","raw":"\\\\xff"}'
    assert arrival.fields == {}
    await origin.aclose()


async def test_a_key_of_another_type_is_reported_in_one_sentence(redis_engine: RedisEngine) -> None:
    redis_engine.plain.set(redis_engine.stream, "x")
    destination = RedisDestination(redis_engine.login, redis_engine.stream, "orders")
    with pytest.raises(StartError, match=r"orders at .* is not a stream; choose another name"):
        await destination.open(A)
    await destination.aclose()


async def test_a_position_that_no_bridge_wrote_is_reported_in_one_sentence(redis_engine: RedisEngine) -> None:
    redis_engine.plain.hset("{orders}:tweetwire", f"{A}/orders", "nonsense")
    destination = RedisDestination(redis_engine.login, redis_engine.stream, "orders")
    with pytest.raises(StartError, match=r"has a position of .* that no bridge wrote: nonsense"):
        await destination.open(A)
    await destination.aclose()


async def test_a_full_memory_is_a_refusal_for_now_that_writes_nothing(redis_engine: RedisEngine) -> None:
    await appended(redis_engine, 0)
    redis_engine.plain.config_set("maxmemory", "1")
    try:
        with pytest.raises(EngineRefused, match="maxmemory"):
            await appended(redis_engine, 1, 2)
    finally:
        redis_engine.plain.config_set("maxmemory", "0")
    assert await appended(redis_engine, 1, 2) == ["1000-0", "1001-1", "1002-2"]


async def test_a_missing_server_and_a_wrong_password_can_be_tried_again(redis_engine: RedisEngine) -> None:
    nowhere = RedisDestination(RedisLogin("127.0.0.1", 1), "orders", "orders")
    with pytest.raises(EngineUnreachable):
        await nowhere.open(A)
    login = RedisLogin("127.0.0.1", redis_engine.login.port, user="me", password=secrets.token_hex())
    stranger = RedisDestination(login, "orders", "orders")
    with pytest.raises(EngineUnreachable):
        await stranger.open(A)
    assert login.password not in repr(login)  # type: ignore[operator]


async def test_too_few_replicas_are_an_unknown_outcome_that_the_next_opening_waits_for(
    redis_engine: RedisEngine,
) -> None:
    destination = RedisDestination(redis_engine.login, redis_engine.stream, "orders", replicas=1)
    with pytest.raises(EngineRefused, match="0 of 1 replicas have the events"):
        await destination.open(A)
    await destination.aclose()


async def test_a_reader_without_the_right_to_write_uses_the_name_of_the_stream(redis_engine: RedisEngine) -> None:
    redis_engine.add(b"1")
    redis_engine.plain.execute_command("ACL", "SETUSER", "reader", "on", ">pass", "~*", "+@read", "+@connection")
    login = RedisLogin("127.0.0.1", redis_engine.login.port, user="reader", password="pass")
    origin = RedisOrigin(login, redis_engine.stream)
    source = await origin.open("", "", is_exact=True)
    assert source.centre == "redis.orders"
    assert len(await origin.read("", 0)) == 1
    await origin.aclose()
