"""A session sends numbered events within its bounds, and saves a position only after the events before it are confirmed."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from change_stream.convert import Converter
from change_stream.message import Change
from change_stream.outlet import ChangeOutlet
from change_stream.position_store import PositionStore
from change_stream.rejected import RejectedChanges
from change_stream.resume import Stamp, StreamPosition
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tweetwire import Client, Publisher, Receipt, SyncClient

pytestmark = pytest.mark.anyio
PRODUCER = "cdc.db.tweets"
stamp = Stamp("cluster", "scope")
Make = Callable[..., ChangeOutlet]


def change(n: int, **document: Any) -> RawBSONDocument:
    inserted = {
        "_id": {"_data": f"8265F1A2B3{n:08X}2B022C0100296E5A1004"},
        "operationType": "insert",
        "clusterTime": Timestamp(0x65F1A2B3, n),
        "documentKey": {"_id": n},
        "fullDocument": {"_id": n, **document},
    }
    return RawBSONDocument(bson.encode(inserted))


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with Client(broker.address, name="test") as connected:
        yield connected


async def hold() -> None:
    """Lead, as the only publisher."""


def outlet(client: Client, publisher: Publisher, **options: Any) -> ChangeOutlet:
    return ChangeOutlet(
        publisher,
        Converter("tweets", PRODUCER),
        RejectedChanges(client, PRODUCER, "tweets"),
        PositionStore(client, "tweets", PRODUCER),
        sequence=options.pop("sequence", 0),
        position=StreamPosition(Timestamp(1, 1)),
        copy=None,
        hold=hold,
        **options,
    )


async def test_sequences_continue_and_records_point_after_each_change(client: Client, broker: BrokerProcess) -> None:
    async with client.publisher("tweets") as publisher:
        out = outlet(client, publisher, sequence=7)
        await out.send_changes([change(n) for n in range(500)], stamp)
    events = events_of(broker.address, "tweets")
    assert [event.sequence for event in events] == list(range(8, 508))
    assert [event.id for event in events] == [str(n) for n in range(500)]
    assert str(events[3].checkpoint).startswith("v1/cluster/scope/1710334643.3/8265F1A2B300000003")


async def test_unconfirmed_bytes_are_bounded(client: Client) -> None:
    waiting: list[int] = []
    receipts: list[Receipt] = []
    async with client.publisher("tweets", on_confirm=receipts.append) as publisher:
        out = outlet(client, publisher, window_bytes=1_000_000)
        for n in range(40):
            await out.send_changes([change(n, text="x" * 400_000)], stamp)
            waiting.append(publisher.unconfirmed)
    assert max(waiting) <= 3
    assert sum(receipt.count for receipt in receipts) == 40


async def test_a_position_is_saved_after_the_confirmed_changes(client: Client, broker: BrokerProcess) -> None:
    async with client.publisher("tweets") as publisher:
        out = outlet(client, publisher)
        await out.send_changes([change(n) for n in range(100)], stamp)
        await out.save(stamp(Timestamp(9, 9), None))
        assert publisher.unconfirmed == 0
        with SyncClient(broker.address, name="reader") as reader:
            position = reader.last("tweets", PRODUCER)
    assert position is not None
    assert (position.sequence, position.checkpoint) == (100, "v1/cluster/scope/9.9/-")


async def test_changes_up_to_a_token_are_passed_over(client: Client, broker: BrokerProcess) -> None:
    async with client.publisher("tweets") as publisher:
        out = outlet(client, publisher)
        out.skip_through = change(5)["_id"]["_data"]
        await out.send_changes([change(n) for n in range(3, 6)], stamp)
        await out.send_changes([change(n) for n in range(5, 8)], stamp)
        await out.send_changes([change(n) for n in range(8, 10)], stamp)
    assert [event.id for event in events_of(broker.address, "tweets")] == ["6", "7", "8", "9"]


async def test_a_change_that_cannot_be_converted_is_kept_once_and_the_position_passes_it(
    client: Client, broker: BrokerProcess
) -> None:
    bad = RawBSONDocument(bytes(change(1, text="@@@@").raw).replace(b"@@@@", b"\xff\xff\xff\xff"))
    for _ in range(2):  # keep the change twice, as after a crash between the writes to the two topics
        async with client.publisher("tweets") as publisher:
            await outlet(client, publisher).send_changes([change(0), bad], stamp)
    assert [event.id for event in events_of(broker.address, "tweets")] == ["0"]
    (kept,) = events_of(broker.address, "rejected_changes")
    assert kept.decode()["behind"] == stamp(Timestamp(0x65F1A2B3, 1), dict(bad["_id"]))
    position = await client.last("tweets", PRODUCER)
    assert position is not None
    assert position.checkpoint == kept.decode()["behind"]


async def test_a_gap_is_numbered_like_a_change(client: Client, broker: BrokerProcess) -> None:
    async with client.publisher("tweets") as publisher:
        out = outlet(client, publisher)
        await out.send_control(Change("gap", "tweets", None, None, None, 5), "v1/cluster/scope/1.1/-")
    (event,) = events_of(broker.address, "tweets")
    assert (event.id, event.sequence, event.checkpoint) == ("tweets", 1, "v1/cluster/scope/1.1/-")
