"""Both loops on a real broker, with the engine in memory: lost replies, refusals, paths, gaps and deleted streams."""

import re
from collections.abc import AsyncIterator

import msgspec
import pytest

from bridge.engines.memory import MemoryDestination, MemoryOrigin, MemoryStream
from tests.bridge.carrying import events_at, running_in, running_out, until_marked
from tests.support.processes import BrokerProcess
from tests.support.waiting import until_async
from tweetwire import Client, Event
from tweetwire.protocol.errors import StartError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def stream() -> MemoryStream:
    return MemoryStream()


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with Client(broker.address, name="test") as client:
        yield client


async def publish(client: Client, first: int, end: int, **members: object) -> None:
    async with client.publisher("orders") as publisher:
        for number in range(first, end):
            await publisher.publish(Event(id=f"e{number}", msg=number, **members))  # type: ignore[arg-type]


def offsets(stream: MemoryStream) -> list[int]:
    return [int(entry.fields["ce_offset"]) for entry in stream.entries]


def destination(stream: MemoryStream) -> MemoryDestination:
    return MemoryDestination(stream, "orders")


async def test_a_lost_reply_neither_loses_nor_doubles(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 500)
    stream.lost_replies = 5
    async with running_out(broker.address, destination(stream), "?batch=50"):
        await until_marked(client, 500)
    assert offsets(stream) == list(range(500))


async def test_an_engine_that_is_down_holds_the_mark_and_not_the_publisher(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 10)
    async with running_out(broker.address, destination(stream)) as outward:
        await until_marked(client, 10)
        stream.is_down = True
        await publish(client, 10, 20)
        await until_async(lambda: outward.standing.failures > 1)
        assert [mark.lag for mark in await client.marks("orders")] == [10]
        stream.is_down = False
        await until_marked(client, 20)
    assert offsets(stream) == list(range(20))


async def test_an_event_that_the_engine_refuses_forever_is_kept_and_excepted(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 10)
    stream.refuses = lambda record: record.offset in {3, 7, 9}
    async with running_out(broker.address, destination(stream)) as outward:
        await until_marked(client, 10)
        assert outward.standing.rejected == 3
    assert offsets(stream) == [0, 1, 2, 4, 5, 6, 8]
    (mark,) = await client.marks("orders")
    assert mark.excepted == (3, 7, 9)
    kept = [event.decode() for event in await events_at(client, "rejected_bridged", 3)]
    assert [one["place"] for one in kept] == ["3", "7", "9"]
    async with running_out(broker.address, destination(stream)):
        await publish(client, 10, 12)
        await until_marked(client, 12)
    assert offsets(stream)[-2:] == [10, 11]
    assert len(await events_at(client, "rejected_bridged", 3)) == 3


async def test_events_whose_path_has_the_stream_are_passed_over_and_marked(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 5, headers={"via": f"other,{stream.centre}"})
    async with running_out(broker.address, destination(stream)) as outward:
        await until_marked(client, 5)
        assert outward.standing.left_out == 5
        await publish(client, 5, 6)
        await until_marked(client, 6)
        await publish(client, 6, 9, headers={"via": stream.centre})
        await until_marked(client, 9)
    async with running_out(broker.address, destination(stream)) as outward:
        await until_async(outward.standing.is_open.is_set)
        assert (outward.standing.resent, outward.standing.lost) == (0, 0)
    assert offsets(stream) == [5]


async def test_damaged_lines_become_gap_records_wherever_they_are(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 20)
    broker.kill()
    (path,) = (broker.data_dir / "topics" / "orders").glob("*.jsonl")
    lines = path.read_bytes().split(b"\n")
    # The first line of a page, two in the middle of one, a whole page, and the last line of the log
    for number in (0, 6, 7, 10, 11, 12, 13, 14, 19):
        lines[number] = lines[number][:-3] + bytes([lines[number][-3] ^ 1]) + lines[number][-2:]
    path.write_bytes(b"\n".join(lines))
    broker.start()
    async with running_out(broker.address, destination(stream), "?batch=5") as outward:
        await until_marked(client, 20)
        assert outward.standing.gaps == 9
    sent = [
        (int(entry.fields.get("gap_first", entry.fields["ce_offset"])), int(entry.fields["ce_offset"]))
        for entry in stream.entries
    ]
    assert [first for first, last in sent if first == last] == [0, 1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 18, 19]
    covered = [offset for first, last in sent for offset in range(first, last + 1)]
    assert covered == list(range(20))
    gap = next(
        msgspec.json.decode(entry.value or b"")["gap"] for entry in stream.entries if "gap_first" in entry.fields
    )
    assert (gap["first"], gap["last"]) == (0, 0)
    assert "damaged" in gap["reason"]
    assert stream.positions[f"{client.broker_identity}/orders"] == 19


async def test_damaged_lines_end_a_route_that_may_have_no_gap(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 5)
    broker.kill()
    (path,) = (broker.data_dir / "topics" / "orders").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"e2"', b'"e7"'))
    broker.start()
    with pytest.raises(ExceptionGroup) as ended:
        async with running_out(broker.address, destination(stream), "?on_gap=fail"):
            await until_marked(client, 5)
    assert re.search(
        "damaged or missing in the broker's log: 2 to 2; give on_gap=report", str(ended.value.exceptions[0])
    )
    assert offsets(stream) == [0, 1]


async def test_a_topic_that_was_made_again_and_is_longer_is_noticed_at_the_start(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 5)
    async with running_out(broker.address, destination(stream)):
        await until_marked(client, 5)
    await client.command("drop orders")
    await publish(client, 100, 110)
    with pytest.raises(ExceptionGroup) as ended:
        async with running_out(broker.address, destination(stream)):
            await until_marked(client, 10)
    assert "dropped and made again" in str(ended.value.exceptions[0])
    assert offsets(stream) == list(range(5))
    async with running_out(broker.address, destination(stream), new_identity=True):
        await until_marked(client, 10)
    # The new topic is sent whole, as that of another broker.
    assert offsets(stream) == [*range(5), *range(10)]
    assert [entry.fields["ce_id"] for entry in stream.entries[5:]] == [f"e{number}" for number in range(100, 110)]
    assert len({entry.fields["ce_source"] for entry in stream.entries}) == 2


async def test_a_topic_that_is_made_again_during_a_session_is_noticed_although_it_is_longer(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 5)
    with pytest.raises(ExceptionGroup) as ended:
        async with running_out(broker.address, destination(stream)):
            await until_marked(client, 5)
            stream.is_down = True
            await publish(client, 5, 6)
            await client.command("drop orders")
            await publish(client, 100, 120)
            stream.is_down = False
            await until_marked(client, 20)
    assert "dropped and made again" in str(ended.value.exceptions[0])
    assert {entry.fields["ce_id"] for entry in stream.entries} <= {f"e{number}" for number in range(6)}
    # The old mark was not made in the new topic.
    assert await client.marks("orders") == []


async def test_a_stream_that_is_deleted_while_it_is_open_ends_the_route(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    await publish(client, 0, 5)
    with pytest.raises(ExceptionGroup) as ended:
        async with running_out(broker.address, destination(stream)):
            await until_marked(client, 5)
            stream.delete()
            await publish(client, 5, 6)
            await until_marked(client, 6)
    assert re.search("on_lost=resend", str(ended.value.exceptions[0]))
    assert isinstance(ended.value.exceptions[0], StartError)
    assert stream.entries == []


async def test_two_routes_at_once_write_each_event_once(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    async with (
        running_out(broker.address, destination(stream), "?batch=7"),
        running_out(broker.address, destination(stream), "?batch=11"),
    ):
        for first in range(0, 600, 50):
            await publish(client, first, first + 50)
        await until_marked(client, 600)
    assert offsets(stream) == list(range(600))


async def test_entries_come_in_once_over_many_restarts(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    for first in range(0, 60, 10):
        for number in range(first, first + 10):
            stream.add(b"%d" % number, {})
        async with running_in(broker.address, MemoryOrigin(stream)):
            await events_at(client, "taken", first + 10)
    assert [event.decode() for event in await events_at(client, "taken", 60)] == list(range(60))


async def test_entries_that_are_left_out_are_not_read_again(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    stream.add(b"1", {})
    for _ in range(5):
        stream.add(b"2", {"via": str(client.broker_identity)})
    async with running_in(broker.address, MemoryOrigin(stream)) as inward:
        await until_async(lambda: inward.standing.left_out == 5)
        await until_seen(client, stream.entries[-1].place)
    async with running_in(broker.address, MemoryOrigin(stream)) as inward:
        stream.add(b"3", {})
        found = await events_at(client, "taken", 2)
        assert inward.standing.left_out == 0
    assert [event.decode() for event in found] == [1, 3]
    assert [event.sequence for event in found] == [1, 2]


async def until_seen(client: Client, place: str) -> None:
    while (last := await client.last("taken", "redis.orders.seen")) is None or place not in str(last.checkpoint):
        await events_at(client, "taken", 1)


@pytest.mark.parametrize(("begin", "taken"), [("earliest", [0, 1, 2, 3]), ("latest", [3]), ("2", [2, 3])])
async def test_a_new_route_inwards_begins_where_the_user_says(
    broker: BrokerProcess, client: Client, stream: MemoryStream, begin: str, taken: list[int]
) -> None:
    for number in range(3):
        stream.add(b"%d" % number, {})
    async with running_in(broker.address, MemoryOrigin(stream), f"?begin={begin}") as inward:
        await until_async(inward.standing.is_open.is_set)
        stream.add(b"3", {})
        found = await events_at(client, "taken", len(taken))
    assert [event.decode() for event in found] == taken


async def test_entries_that_were_removed_unread_are_one_gap_event(
    broker: BrokerProcess, client: Client, stream: MemoryStream
) -> None:
    for number in range(3):
        stream.add(b"%d" % number, {})
    async with running_in(broker.address, MemoryOrigin(stream)):
        await events_at(client, "taken", 3)
    for number in range(3, 8):
        stream.add(b"%d" % number, {})
    del stream.entries[:6]
    for _ in range(2):
        async with running_in(broker.address, MemoryOrigin(stream)):
            found = await events_at(client, "taken", 6)
    assert [event.decode() for event in found if not event.id.startswith("gap")] == [0, 1, 2, 6, 7]
    gap = msgspec.json.decode(found[3].msg)["gap"]
    assert (gap["after"].lstrip("0"), gap["before"].lstrip("0")) == ("3", "7")


@pytest.mark.parametrize(("on_lost", "taken"), [("resend", [0, 1, 0, 1]), ("skip", [0, 1, 2])])
async def test_a_stream_that_was_made_again_is_taken_as_the_user_says(
    broker: BrokerProcess, client: Client, stream: MemoryStream, on_lost: str, taken: list[int]
) -> None:
    for number in range(2):
        stream.add(b"%d" % number, {})
    async with running_in(broker.address, MemoryOrigin(stream)):
        await events_at(client, "taken", 2)
    stream.delete()
    stream.make()
    for number in range(2):
        stream.add(b"%d" % number, {})
    with pytest.raises(ExceptionGroup) as ended:
        async with running_in(broker.address, MemoryOrigin(stream)):
            await events_at(client, "taken", 3)
    assert "on_lost=resend" in str(ended.value.exceptions[0])
    async with running_in(broker.address, MemoryOrigin(stream), f"?on_lost={on_lost}") as inward:
        await until_async(inward.standing.is_open.is_set)
        if on_lost == "skip":
            stream.add(b"2", {})
        found = await events_at(client, "taken", len(taken))
    assert [event.decode() for event in found] == taken
