"""Every engine keeps the contract: the one in memory, and real servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bridge.central import Arrival, CentralLost, Destination, EntriesRemoved, Found, NotThereYet, Origin, PositionMoved
from bridge.engines.kafka_origin import KafkaOrigin
from tests.bridge.engines.conftest import Engine
from tests.bridge.engines.kafka_engine import KafkaEngine
from tests.bridge.records import record

pytestmark = pytest.mark.anyio

A, B = "A" * 22, "B" * 22


@asynccontextmanager
async def destination_of(engine: Engine, topic: str = "orders", **options: bool) -> AsyncIterator[Destination]:
    destination = engine.destination(topic, **options)
    try:
        yield destination
    finally:
        await destination.aclose()


@asynccontextmanager
async def origin_of(engine: Engine) -> AsyncIterator[Origin]:
    origin = engine.origin()
    try:
        yield origin
    finally:
        await origin.aclose()


async def offsets(destination: Destination) -> list[int]:
    found = [arrival async for arrivals in destination.entries() for arrival in arrivals]
    return [int(arrival.fields["ce_offset"]) for arrival in found if "ce_offset" in arrival.fields]


async def read_all(origin: Origin, after: str = "") -> list[Arrival]:
    found: list[Arrival] = []
    # Kafka shows the records of a transaction to readers a moment after it has confirmed the transaction.
    wait_s = 0.5 if isinstance(origin, KafkaOrigin) else 0
    while arrivals := await origin.read(found[-1].place if found else after, wait_s):
        found += arrivals
    return found


async def test_a_new_stream_has_no_position_and_keeps_its_identity(engine: Engine) -> None:
    async with destination_of(engine) as first, destination_of(engine) as second:
        found = await first.open(A)
        assert found == Found(None, found.centre)
        assert found.centre
        assert await second.open(B) == found


async def test_the_position_is_the_last_offset_of_the_last_append(engine: Engine) -> None:
    async with destination_of(engine) as destination:
        await destination.open(A)
        await destination.append([record(0), record(1)])
        await destination.append([record(5)])
        assert (await destination.open(A)).position == 5
        assert (await destination.open(B)).position is None
        assert await offsets(destination) == [0, 1, 5]


async def test_the_position_has_the_id_of_the_log_it_counts_in(engine: Engine) -> None:
    async with destination_of(engine) as destination:
        assert (await destination.open(A, "log1")).log == ""
        await destination.append([record(0), record(1)])
        assert await destination.open(A, "log2") == Found(1, (await destination.open(A)).centre, log="log1")
        # A position of an earlier release has none.
        await destination.open(A)
        await destination.append([record(2)])
        found = await destination.open(A, "log2")
        assert (found.position, found.log, found.is_replaced) == (2, "", False)
        await destination.append([record(3)])
        assert (await destination.open(A, "log2")).log == "log2"
        await destination.forget()
        assert (await destination.open(A, "log2")).log == ""


async def test_offset_0_is_a_position(engine: Engine) -> None:
    async with destination_of(engine) as destination:
        await destination.open(A)
        await destination.append([record(0)])
        assert (await destination.open(A)).position == 0


async def test_each_topic_and_each_broker_has_a_position(engine: Engine) -> None:
    async with (
        destination_of(engine) as orders,
        destination_of(engine, "bills") as bills,
        destination_of(engine) as other,
    ):
        for number, (destination, broker) in enumerate([(orders, A), (bills, A), (other, B)]):
            await destination.open(broker)
            await destination.append([record(number)])
        assert [(await one.open(broker)).position for one, broker in [(orders, A), (bills, A), (other, B)]] == [0, 1, 2]


async def test_of_two_bridges_one_is_refused_and_writes_nothing(engine: Engine) -> None:
    async with destination_of(engine) as first, destination_of(engine) as second:
        # In Kafka, the bridge that opens the route last keeps it. In other engines, the bridge that writes first does.
        for bridge in (second, first) if isinstance(engine, KafkaEngine) else (first, second):
            await bridge.open(A)
        await first.append([record(0), record(1)])
        with pytest.raises(PositionMoved):
            await second.append([record(0), record(1)])
        assert (await second.open(A)).position == 1
        await second.append([record(2)])
        with pytest.raises(PositionMoved):
            await first.append([record(2), record(3)])
        assert await offsets(second) == [0, 1, 2]


async def test_a_deleted_stream_is_noticed_by_an_open_route(engine: Engine) -> None:
    async with destination_of(engine) as destination:
        before = await destination.open(A)
        await destination.append([record(0)])
        engine.delete()
        with pytest.raises(CentralLost):
            await destination.append([record(1)])
        found = await destination.open(A)
        assert found.position is None or found.is_replaced
        await destination.forget()
        again = await destination.open(A)
        assert (again.position, again.is_replaced) == (None, False)
        assert again.centre != before.centre
        await destination.append([record(0)])
        assert await offsets(destination) == [0]


async def test_a_route_that_may_not_make_its_stream_waits_for_it(engine: Engine) -> None:
    async with destination_of(engine, create=False) as destination, origin_of(engine) as origin:
        with pytest.raises(NotThereYet):
            await destination.open(A)
        with pytest.raises(NotThereYet):
            await origin.open("", "", is_exact=True)
        engine.add(b"1")
        assert (await destination.open(A)).position is None
        assert (await origin.open("", "", is_exact=True)).last


async def test_values_and_attributes_arrive_unchanged(engine: Engine) -> None:
    async with destination_of(engine) as destination, origin_of(engine) as origin:
        await destination.open(A)
        await destination.append([record(0, "π\n\0".encode()), record(1, None), record(2, b"x" * 100_000)])
        await origin.open("", "", is_exact=True)
        found = await read_all(origin)
        assert [one.value for one in found] == ["π\n\0".encode(), None, b"x" * 100_000]
        assert [one.fields["ce_id"] for one in found] == ["e-0", "e-1", "e-2"]


async def test_reading_continues_after_a_place(engine: Engine) -> None:
    async with destination_of(engine) as destination, origin_of(engine) as origin, origin_of(engine) as later:
        await destination.open(A)
        await destination.append([record(number) for number in range(2500)])
        source = await origin.open("", "", is_exact=True)
        found = await read_all(origin)
        assert [one.fields["ce_offset"] for one in found] == [str(number) for number in range(2500)]
        source = await origin.open("", "", is_exact=True)
        assert await later.open(found[1233].place, source.centre, is_exact=True) == source
        assert [one.place for one in await read_all(later, found[1233].place)] == [one.place for one in found[1234:]]
        # In Kafka, the last place is the end of a transaction, which is not an entry.
        assert await read_all(later, source.last) == []


async def test_a_reader_waits_for_the_next_entry(engine: Engine) -> None:
    async with origin_of(engine) as origin:
        engine.add(b"1")
        await origin.open("", "", is_exact=True)
        (first,) = await read_all(origin)
        assert await origin.read(first.place, 0.05) == []
        engine.add(b"2")
        found = await origin.read(first.place, 20)
        assert [one.value for one in found or await origin.read(first.place, 20)] == [b"2"]


async def test_another_stream_of_the_name_is_noticed_by_its_reader(engine: Engine) -> None:
    async with origin_of(engine) as origin:
        engine.add(b"1")
        engine.add(b"2")
        source = await origin.open("", "", is_exact=True)
        found = await read_all(origin)
        engine.delete()
        assert (await origin.open(found[-1].place, source.centre, is_exact=True)).is_replaced


async def test_entries_that_were_removed_unread_are_reported_once(engine: Engine) -> None:
    async with destination_of(engine) as destination, origin_of(engine) as origin:
        await destination.open(A)
        await destination.append([record(number) for number in range(6)])
        source = await origin.open("", "", is_exact=True)
        found = await read_all(origin)
        engine.remove_first(4)
        await origin.open(found[1].place, source.centre, is_exact=True)
        with pytest.raises(EntriesRemoved) as removed:
            await origin.read(found[1].place, 0)
        assert (removed.value.after, removed.value.before) == (found[1].place, found[4].place)
        assert [one.place for one in await read_all(origin, found[1].place)] == [found[4].place, found[5].place]
        await origin.open(found[1].place, source.centre, is_exact=False)
        assert len(await read_all(origin, found[1].place)) == 2


async def test_entries_that_were_removed_after_they_were_read_are_not_a_gap(engine: Engine) -> None:
    async with destination_of(engine) as destination, origin_of(engine) as origin:
        await destination.open(A)
        await destination.append([record(number) for number in range(6)])
        source = await origin.open("", "", is_exact=True)
        found = await read_all(origin)
        engine.remove_first(3)
        await origin.open(found[3].place, source.centre, is_exact=True)
        assert [one.place for one in await read_all(origin, found[3].place)] == [one.place for one in found[4:]]
