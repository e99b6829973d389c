"""The pipelined publisher with `qos` 2: each event is stored once, in order, even if the client or broker ends early."""

from pathlib import Path

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import answering, scripted_broker
from tweetwire import Client, Event, HandshakeFailed, Receipt, Refusal
from tweetwire.client.exactly_once.steps import TRIES

pytestmark = pytest.mark.anyio


def numbered(count: int, first: int = 0) -> list[Event]:
    return [Event(id=f"m{number}", msg=number) for number in range(first, first + count)]


async def ids(client: Client, topic: str) -> list[str]:
    return [event.id for event in (await client.read(topic, 0, limit=10_000)).events]


async def test_events_are_stored_once_and_in_order_and_each_has_its_receipt(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    receipts: list[Receipt] = []
    async with Client(shared_broker.address, name="ann", spool=tmp_path) as client:
        async with client.publisher(topic, window=700, on_confirm=receipts.append, qos=2) as publisher:
            await publisher.publish_many(numbered(1200))
            for event in numbered(5, 1200):
                await publisher.publish(event)
        assert publisher.unconfirmed == client.unsent == 0
        assert [receipt.first for receipt in receipts] == list(range(1205))
        assert {receipt.durability for receipt in receipts} == {"synced"}
        assert await ids(client, topic) == [event.id for event in numbered(1205)]


async def test_an_id_that_is_given_more_than_once_is_stored_once(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    receipts: list[Receipt] = []
    async with Client(shared_broker.address, name="ann", spool=tmp_path) as client:
        async with client.publisher(topic, on_confirm=receipts.append, qos=2) as publisher:
            await publisher.publish_many(numbered(600) + numbered(600))
            single = await client.publish(topic, Event(id="m7", msg=7), qos=2)
        assert [receipt.first for receipt in receipts] == [*range(600), *range(600)]
        assert single.first == 7
        assert await ids(client, topic) == [event.id for event in numbered(600)]


async def test_a_refused_event_is_raised_once_and_the_others_are_stored(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with Client(shared_broker.address, name="ann", spool=tmp_path) as client:
        await client.command(f'schema {topic} {{"type":"integer"}}')
        async with client.publisher(topic, qos=2) as publisher:
            await publisher.publish_many([*numbered(2), Event(id="bad", msg="text"), *numbered(2, 2)])
            with pytest.raises(Refusal, match="schema"):
                await publisher.flush()
        assert client.unsent == publisher.unconfirmed == 0
        assert await ids(client, topic) == ["m0", "m1", "m2", "m3"]


async def test_unconfirmed_events_are_kept_and_stored_after_an_error_leaves_the_block(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with Client(shared_broker.address, name="ann", spool=tmp_path) as client:
        with pytest.raises(KeyError) as raised:
            async with client.publisher(topic, qos=2) as publisher:
                await publisher.publish(Event(id="m0", msg=0))
                raise KeyError
        assert raised.value.__notes__ == [
            f"1 events to topic {topic} are unconfirmed; they are kept in the spool and will be stored once"
        ]
        with anyio.fail_after(60):
            while client.unsent:
                await anyio.sleep(0.02)
        assert await ids(client, topic) == ["m0"]


async def test_the_next_client_stores_the_events_that_a_client_left_in_its_spool(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(broker.address, name="ann", spool=tmp_path, leave_timeout_s=0.1) as client:
        broker.kill()
        with pytest.raises(KeyError):
            async with client.publisher("t", qos=2) as publisher:
                await publisher.publish_many(numbered(600))
                raise KeyError
    assert client.unsent == 600
    await anyio.to_thread.run_sync(broker.start)
    async with Client(broker.address, name="ann", spool=tmp_path) as client:
        with anyio.fail_after(60):
            while client.unsent:
                await anyio.sleep(0.02)
        assert await ids(client, "t") == [event.id for event in numbered(600)]


async def test_after_five_tries_the_publisher_raises_an_error_and_the_events_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tweetwire.client.exactly_once.steps.PAUSES_S", [0.0] * TRIES)
    with scripted_broker(answering({b"pub2": b"-ERR disk full\n"})) as address:
        async with Client(address, name="ann", spool=tmp_path) as client:
            with pytest.raises(HandshakeFailed, match="gave up pub2 t after 5 tries"):
                async with client.publisher("t", qos=2) as publisher:
                    await publisher.publish_many(numbered(3))
            with pytest.raises(HandshakeFailed):
                await publisher.publish(Event(id="m4", msg=1))
            assert client.unsent == 3


async def test_exactly_once_publishing_needs_a_spool_and_events_that_json_can_express(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with Client(shared_broker.address) as client:
        with pytest.raises(ValueError, match="needs a folder"):
            client.publisher(topic, qos=2)
    async with Client(shared_broker.address, name="ann", spool=tmp_path) as client:
        async with client.publisher(topic, qos=2) as publisher:
            with pytest.raises(ValueError, match="JSON cannot express"):
                await publisher.publish(Event(id="m", msg=float("nan")))
        assert client.unsent == 0
