"""The client's half of the handshakes: its data on the disk, its retries, and how it continues after a restart."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import answering, scripted_broker
from tweetwire import Client, Event, HandshakeFailed, Refusal, StoredEvent, SyncClient
from tweetwire.client.exactly_once import Spool
from tweetwire.client.exactly_once.spool import COMPACT_BYTES, Incoming, Outgoing
from tweetwire.client.exactly_once.steps import PAUSES_S
from tweetwire.protocol.errors import SpoolTaken, SpoolUnusable
from tweetwire.protocol.handshakes import State

pytestmark = pytest.mark.anyio


def message(number: int, state: State = State.KEPT, topic: str = "t") -> Outgoing:
    return Outgoing(topic, f"m{number}", f'{{"id":"m{number}","priority":0,"msg":{number}}}', state)


@contextmanager
def opened(folder: Path, name: str = "ann") -> Iterator[Spool]:
    spool = Spool(folder, name)
    try:
        yield spool
    finally:
        spool.close()


def test_unfinished_states_are_restored_and_finished_ones_are_not(tmp_path: Path) -> None:
    event = Incoming("t", "s", 7, "{}", State.OWNED)
    with opened(tmp_path) as spool:
        spool.put([message(1), message(2), event])
        spool.put([message(1, State.RECEIVED), message(2, State.CONFIRMED)])
    with opened(tmp_path) as spool:
        assert spool.outgoing == {("t", "m1"): message(1, State.RECEIVED)}
        assert spool.incoming == {("t", "s", 7): event}


@pytest.mark.parametrize("cut", [2, 9, 30])
def test_a_torn_line_loses_only_itself(tmp_path: Path, cut: int) -> None:
    with opened(tmp_path) as spool:
        spool.put([message(1), message(2)])
    path = tmp_path / "ann.spool"
    path.write_bytes(path.read_bytes()[:-cut])
    with opened(tmp_path) as spool:
        assert list(spool.outgoing.values()) == [message(1)]
        spool.put([message(3)])
    with opened(tmp_path) as spool:
        assert list(spool.outgoing.values()) == [message(1), message(3)]


async def test_the_file_does_not_grow_with_finished_handshakes(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        long = Outgoing("t", "long", "x" * (COMPACT_BYTES // 8), State.KEPT)
        for _ in range(20):
            spool.put([long])
            spool.put([Outgoing("t", "long", "", State.CONFIRMED), message(1)])
            await spool.sync()
        assert spool.path.stat().st_size < 2 * COMPACT_BYTES
    with opened(tmp_path) as spool:
        assert list(spool.outgoing) == [("t", "m1")]


def test_a_full_disk_is_reported_and_damages_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(handle: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(handle, bytes(data[: len(data) // 2]))

    with opened(tmp_path) as spool:
        spool.put([message(1)])
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            with pytest.raises(SpoolUnusable, match="No space left"):
                spool.put([message(1, State.RECEIVED), message(2)])
        assert spool.outgoing == {("t", "m1"): message(1)}
        spool.put([message(3)])
    with opened(tmp_path) as spool:
        assert list(spool.outgoing.values()) == [message(1), message(3)]


def test_two_processes_with_one_name_are_told_apart(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(SpoolTaken, match="another process uses"):
        Spool(tmp_path, "ann")
    with opened(tmp_path), opened(tmp_path, "bob"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(SpoolUnusable, match="cannot use"):
        Spool(tmp_path / "file", "ann")


async def test_a_message_is_stored_once_and_its_receipt_has_the_offset(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with Client(shared_broker.address, name="ann", spool=tmp_path / "spool") as client:
        receipts = {}

        async def publish(id_: str) -> None:
            receipts[id_] = await client.publish(topic, Event(id=id_, msg=1), qos=2)

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(publish, f"m{number}")
                tasks.start_soon(publish, "same")
        assert client.unsent == 0
        again = await client.publish(topic, Event(id="m7", msg=1), qos=2)
        page = await client.read(topic, 0)
    assert {event.id: event.offset for event in page.events} == {id_: one.first for id_, one in receipts.items()}
    assert len(page.events) == 41
    assert again == receipts["m7"]
    assert again.durability == "synced"


async def test_messages_that_a_process_has_left_are_sent_by_the_next(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address, name="ann") as client:
        client.command(f'pub2 {topic} {{"id":"m1","priority":0,"msg":1}}')
    with opened(tmp_path / "spool") as spool:
        spool.put([message(1, State.RECEIVED, topic), message(2, topic=topic), message(3, topic=topic)])
    async with Client(shared_broker.address, name="ann", spool=tmp_path / "spool") as client:
        with anyio.fail_after(60):
            while client.unsent:
                await anyio.sleep(0.02)
        page = await client.read(topic, 0)
    assert sorted(event.id for event in page.events) == ["m1", "m2", "m3"]


async def test_a_broker_that_has_lost_a_held_message_gets_it_again(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with opened(tmp_path / "spool") as spool:
        spool.put([message(1, State.RECEIVED, topic)])
    async with Client(shared_broker.address, name="ann", spool=tmp_path / "spool") as client:
        receipt = await client.publish(topic, Event(id="m1", msg=1), qos=2)
        assert [event.offset for event in (await client.read(topic, 0)).events] == [receipt.first] == [0]


async def test_a_message_that_the_broker_refuses_is_given_up_with_a_reason(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with Client(shared_broker.address, name="ann", spool=tmp_path / "spool") as client:
        await client.command(f'schema {topic} {{"type":"integer"}}')
        with pytest.raises(Refusal, match="schema"):
            await client.publish(topic, Event(id="m1", msg="text"), qos=2)
        with pytest.raises(Refusal, match="no white space"):
            await client.publish(topic, Event(id="m 1", msg=1), qos=2)
        assert client.unsent == 0
        assert (await client.publish(topic, Event(id="m1", msg=1), qos=2)).first == 0


@pytest.mark.parametrize(("reply", "why"), [(b"-ERR disk full\n", "disk full"), (b"", "no answer within 0.05 s")])
async def test_after_five_tries_a_clear_error_is_raised_and_the_message_is_kept(
    reply: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tweetwire.client.exactly_once.steps.PAUSES_S", [pause / 20 for pause in PAUSES_S])
    with scripted_broker(answering({b"pub2": reply})) as address:
        async with Client(address, name="ann", spool=tmp_path, answer_s=0.05 if not reply else 10.0) as client:
            with pytest.raises(HandshakeFailed, match=f"gave up pub2 t after 5 tries .{why}.; its handshake is kept"):
                await client.publish("t", Event(id="m1", msg=1), qos=2)
            assert client.unsent == 1
    with opened(tmp_path) as spool:
        assert list(spool.outgoing) == [("t", "m1")]


async def test_events_are_handed_over_once_and_acked_on_this_disk_first(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with Client(shared_broker.address, name="ann", spool=tmp_path / "spool") as client:
        async with client.publisher(topic) as publisher:
            await publisher.publish_many(Event(id=f"m{n}", msg=n, priority=n % 3) for n in range(2000))
        subscription = await client.subscribe(topic, as_="s", from_="earliest", prefetch=100, qos=2)
        seen: list[str] = []
        async for batch in subscription:
            await subscription.ack(batch)
            seen += [event.id for event in batch]
            if len(seen) == 2000:
                break
        assert len(set(seen)) == 2000
        with anyio.fail_after(60):
            while client.unfinished:
                await anyio.sleep(0.02)
        assert (await client.stats())["handshakes"]["taken"] == 0
        assert (await client.stats())["topics"][topic]["subscriptions"]["s"]["settled"] == 2000
        with pytest.raises(ValueError, match="cannot be given back"):
            await subscription.nack(batch[0])


async def test_an_event_handed_over_and_not_acked_is_handed_to_the_next_process_as_a_second_attempt(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address) as client:
        client.publish_many(topic, (Event(id=f"m{n}", msg=n) for n in range(3)))
    seen = []
    for is_first in (True, False):
        async with Client(shared_broker.address, name="ann", spool=tmp_path / "spool") as client:
            subscription = await client.subscribe(topic, as_="s", from_="earliest", prefetch=3, qos=2)
            got: list[StoredEvent] = []
            while len(got) < (3 if is_first else 2):
                got += await anext(subscription)
            seen.append([(event.id, event.attempt) for event in got])
            await subscription.ack(got[:1] if is_first else got)
    assert seen == [[("m0", 1), ("m1", 1), ("m2", 1)], [("m1", 2), ("m2", 2)]]


async def test_an_older_connection_of_a_client_cannot_take_an_event_that_the_newer_one_was_refused(
    shared_broker: BrokerProcess, topic: str
) -> None:
    with SyncClient(shared_broker.address, name="ann") as old, SyncClient(shared_broker.address, name="ann") as new:
        old.publish(topic, Event(id="m", msg=1))
        new.command(f'pub2 {topic} {{"id":"x","msg":1}}')
        for line in (
            f'pub2 {topic} {{"id":"y","msg":1}}',
            f"pubrel {topic} x",
            f"pubrec {topic} @0",
            f"pubcomp {topic} @0",
        ):
            with pytest.raises(Refusal, match="a newer connection of ann"):
                old.command(line)
        assert new.command(f"pubrel {topic} x") == f"+COMP {topic} x 1 synced"


async def test_a_missing_name_or_spool_is_reported_in_one_sentence(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with Client(shared_broker.address) as client:
        with pytest.raises(ValueError, match="needs a folder"):
            await client.publish(topic, Event(id="m1", msg=1), qos=2)
        with pytest.raises(ValueError, match="needs a folder"):
            await client.subscribe(topic, as_="s", qos=2)
    async with Client(shared_broker.address, spool=tmp_path / "spool") as client:
        with pytest.raises(ValueError, match="as_="):
            await client.subscribe(topic, qos=2)
        with pytest.raises(Refusal, match="unknown_topic"):
            await client.subscribe("nothing", as_="s", qos=2)
