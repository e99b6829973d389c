"""Topics of Kafka beyond the contract: keys, headers, sizes, fencing, open transactions, and messages of other programs."""

import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest

from bridge.central import Arrival, CentralLost, EngineRefused, EngineUnreachable, PositionMoved, Record, RecordRefused
from bridge.engines import kafka, kafka_origin
from bridge.engines.kafka import KafkaDestination
from bridge.engines.kafka_link import KafkaLogin
from bridge.engines.kafka_positions import POSITIONS
from tests.bridge.engines.kafka_engine import KafkaEngine
from tests.bridge.records import record
from tests.support.kafka_servers import KafkaServer, header, read_messages
from tweetwire.protocol.errors import StartError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

A, B = "A" * 22, "B" * 22


@asynccontextmanager
async def opened(engine: KafkaEngine, broker: str = A, **options: Any) -> AsyncIterator[KafkaDestination]:
    one = KafkaDestination(engine.login, engine.topic, "orders", **options)
    try:
        await one.open(broker)
        yield one
    finally:
        await one.aclose()


async def entries(engine: KafkaEngine) -> list[Arrival]:
    """Return the entries of the topic as a route inwards reads them."""
    origin = engine.origin()
    await origin.open("", "", is_exact=True)
    found: list[Arrival] = []
    # The records of a transaction are shown to readers a moment after it was confirmed.
    while arrivals := await origin.read(found[-1].place if found else "", 0.5):
        found += arrivals
    await origin.aclose()
    return found


def keyed(offset: int, key: str | None, value: bytes | None = b"1") -> Record:
    return Record(offset, 1_700_000_000_000 + offset, key, value, ["ce_id", f"e{offset}", "ce_offset", str(offset)])


def offsets(engine: KafkaEngine) -> list[int]:
    return [int(header(message, "ce_offset")) for message in engine.messages()]


async def test_a_message_has_key_time_and_the_headers_of_a_cloud_event(kafka_engine: KafkaEngine) -> None:
    fields = ["ce_id", " π\r\n", "ce_datacontenttype", "application/json", "headers", '{"a":" b "}']
    async with opened(kafka_engine) as one:
        await one.append([Record(0, 1_700_000_000_123, "user 7", b"1", fields), Record(1, 5, None, None, fields)])
    first, second = kafka_engine.messages()
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"user 7", b"1", 1_700_000_000_123)
    assert (second.key(), second.value()) == (None, None)
    assert first.headers() == [
        ("ce_id", " π\r\n".encode()),
        ("content-type", b"application/json"),
        ("headers", b'{"a":" b "}'),
    ]


async def test_events_of_a_key_are_in_one_partition_which_java_clients_would_choose(kafka_engine: KafkaEngine) -> None:
    async with opened(kafka_engine, partitions=5) as one:
        await one.append([keyed(number, f"k{number % 7}") for number in range(700)])
    places: dict[bytes | None, set[int | None]] = {}
    messages = kafka_engine.messages()
    for message in messages:
        places.setdefault(message.key(), set()).add(message.partition())
    # The partitions that org.apache.kafka.common.utils.Utils.murmur2 gives.
    assert {key: found for key, found in places.items() if key} == {
        f"k{number}".encode(): {murmur2(f"k{number}".encode()) % 5} for number in range(7)
    }
    for key in range(7):
        found = [int(header(one, "ce_offset")) for one in messages if one.key() == f"k{key}".encode()]
        assert found == list(range(key, 700, 7))


def murmur2(data: bytes) -> int:
    """Return the hash of a key as Kafka's Java client computes it."""
    mask, multiplier, rotation = 0xFFFFFFFF, 0x5BD1E995, 24
    found = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ (word >> rotation)) * multiplier & mask
        found = found * multiplier & mask ^ word
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * multiplier & mask
    found = (found ^ (found >> 13)) * multiplier & mask
    return (found ^ (found >> 15)) & 0x7FFFFFFF


@pytest.mark.parametrize("setting", [{}, {"max_message_bytes": "20000"}])
async def test_a_record_that_is_too_large_is_refused_alone(kafka_engine: KafkaEngine, setting: dict[str, Any]) -> None:
    kafka_engine.make(**setting)
    size = int(setting.get("max_message_bytes", "1048588")) + 1
    async with opened(kafka_engine) as one:
        await one.append([record(0)])
        with pytest.raises(RecordRefused) as refused:
            await one.append([record(1), record(2), record(3, b"x" * size), record(4)])
        assert refused.value.offset == 3
        await one.append([record(1), record(2)])
        await one.append([record(4)])
        assert offsets(kafka_engine) == [0, 1, 2, 4]


async def test_records_that_are_small_alone_are_not_too_large_together(kafka_engine: KafkaEngine) -> None:
    kafka_engine.make(max_message_bytes="20000")
    async with opened(kafka_engine) as one:
        await one.append([record(number, b"x" * 3000) for number in range(200)])
    assert offsets(kafka_engine) == list(range(200))


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ({"cleanup_policy": "compact"}, [keyed(2, None)]),
        ({"cleanup_policy": "compact"}, [keyed(2, None), keyed(3, None)]),
        ({"message_timestamp_after_max_ms": "1000"}, [Record(2, 4_000_000_000_000, "k", b"1", [])]),
    ],
)
async def test_a_record_that_the_server_will_never_accept_is_named(
    kafka_engine: KafkaEngine, setting: dict[str, Any], wrong: list[Record]
) -> None:
    kafka_engine.make(**setting)
    async with opened(kafka_engine) as one:
        with pytest.raises(RecordRefused) as refused:
            await one.append([keyed(0, "a"), keyed(1, "b"), *wrong, keyed(4, "c")])
        assert refused.value.offset == 2
        await one.append([keyed(0, "a"), keyed(1, "b")])
        await one.append([keyed(4, "c")])
    assert offsets(kafka_engine) == [0, 1, 4]


async def test_an_append_that_is_cancelled_anywhere_is_whole_or_nothing(kafka_engine: KafkaEngine) -> None:
    chance = random.Random(7)
    written, cancelled = 0, 0
    async with opened(kafka_engine) as one:
        for _ in range(25):
            with anyio.move_on_after(chance.uniform(0, 0.005)) as scope:
                await one.append([record(written + at) for at in range(100)])
            cancelled += scope.cancelled_caught
            position = (await one.open(A)).position
            assert position in {None if written == 0 else written - 1, written + 99}
            written = 0 if position is None else position + 1
    assert cancelled > 3
    assert offsets(kafka_engine) == list(range(written))


async def test_the_transaction_of_a_bridge_that_hangs_is_ended_by_the_next_one(
    kafka_engine: KafkaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(kafka_engine) as first:
        await first.append([record(0)])
        is_over = anyio.Event()
        commit = first._link.thread.repeat

        async def hang(*words: Any) -> None:
            # The bridge has sent its records, and stops before it commits them.
            await is_over.wait()
            await commit(*words)

        monkeypatch.setattr(first._link.thread, "repeat", hang)

        async def append() -> None:
            with pytest.raises(PositionMoved):
                await first.append([record(1), record(2)])

        async with anyio.create_task_group() as tasks, opened(kafka_engine) as second:
            tasks.start_soon(append)
            await anyio.sleep(0.3)
            assert (await second.open(A)).position == 0
            await second.append([record(1)])
            is_over.set()
    assert offsets(kafka_engine) == [0, 1]


async def test_an_opening_waits_for_an_open_transaction_of_another_route(
    kafka_engine: KafkaEngine, kafka_server: KafkaServer
) -> None:
    async with opened(kafka_engine) as one:
        await one.append([record(0)])
        stranger = kafka_server.producer(transactional_id=f"stranger-{kafka_engine.topic}")
        stranger.init_transactions(20)
        stranger.begin_transaction()
        stranger.produce(POSITIONS, b'{"offset":5,"centre":"x"}', f"{B}/orders/x", 0)
        stranger.flush(20)
        await one.append([record(1)])
        hurried = KafkaDestination(KafkaLogin(kafka_server.hosts, timeout_s=2), kafka_engine.topic, "orders")
        with pytest.raises(EngineUnreachable, match="open transaction of another route"):
            await hurried.open(A)
        stranger.commit_transaction(20)
        assert (await hurried.open(A)).position == 1
        await hurried.aclose()


async def test_a_position_is_found_after_many_of_other_routes(
    kafka_engine: KafkaEngine, kafka_server: KafkaServer
) -> None:
    async with opened(kafka_engine) as one:
        await one.append([record(0)])
        others = kafka_server.producer()
        for number in range(5000):
            others.produce(POSITIONS, b'{"offset":5,"centre":"x"}', f"{B}/orders/{number % 100}", 0)
        assert others.flush(20) == 0
        assert (await one.open(A)).position == 0


async def test_a_position_that_no_bridge_wrote_is_refused(kafka_engine: KafkaEngine, kafka_server: KafkaServer) -> None:
    async with opened(kafka_engine) as one:
        await one.append([record(0)])
        others = kafka_server.producer()
        others.produce(POSITIONS, b"nonsense", f"{A}/orders/{kafka_engine.topic}", 0)
        assert others.flush(20) == 0
        with pytest.raises(StartError, match="that no bridge wrote: nonsense"):
            await one.open(A)


async def test_the_positions_are_in_a_compacted_topic(kafka_engine: KafkaEngine, kafka_server: KafkaServer) -> None:
    async with opened(kafka_engine) as one:
        await one.append([record(number) for number in range(5)])
    key = f"{A}/orders/{kafka_engine.topic}".encode()
    values = [one.value() for one in read_messages(kafka_server.servers, POSITIONS) if one.key() == key]
    assert [value and value.startswith(b'{"offset":4,"centre":"kafka.') for value in values] == [True]


async def test_a_topic_that_was_made_again_is_noticed_by_a_look_at_its_id(
    kafka_engine: KafkaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(kafka_engine) as one:
        await one.append([record(0)])
        origin = kafka_engine.origin()
        source = await origin.open("", "", is_exact=True)
        assert [arrival.place for arrival in await origin.read("", 0)] == ["0:0"]
        kafka_engine.delete()
        kafka_engine.make()
        monkeypatch.setattr(kafka, "LOOK_EVERY_S", 0)
        monkeypatch.setattr(kafka_origin, "LOOK_EVERY_S", 0)
        with pytest.raises(CentralLost):
            await one.append([record(1)])
        with pytest.raises(EngineUnreachable, match="was deleted"):
            await origin.read("0:0", 0)
        assert (await origin.open("0:0", source.centre, is_exact=True)).is_replaced
        await origin.aclose()
        assert (await one.open(A)).is_replaced
    assert kafka_engine.messages() == []


async def test_a_topic_with_too_few_replicas_is_refused(kafka_engine: KafkaEngine) -> None:
    with pytest.raises(EngineRefused, match=r"(?i)replication factor"):
        async with opened(kafka_engine, replicas=2):
            pass
    kafka_engine.make()
    with pytest.raises(StartError, match="has 1 replicas, and the route needs 2"):
        async with opened(kafka_engine, replicas=2):
            pass


async def test_a_bad_name_is_reported_in_one_sentence(kafka_server: KafkaServer) -> None:
    with pytest.raises(StartError, match=r"'a b' cannot name a topic of Kafka"):
        await KafkaDestination(KafkaLogin(kafka_server.hosts), "a b", "orders").open(A)


async def test_a_server_that_is_missing_is_reported_in_time() -> None:
    one = KafkaDestination(KafkaLogin((("127.0.0.1", 1),), timeout_s=1), "orders", "orders")
    with anyio.fail_after(10), pytest.raises(EngineUnreachable):
        await one.open(A)
    with anyio.move_on_after(0.1) as scope:
        await one.open(A)
    assert scope.cancelled_caught
    await one.aclose()


async def test_messages_of_other_programs_keep_key_and_headers(kafka_engine: KafkaEngine) -> None:
    kafka_engine.add(b'{"n":1}', key="k", headers={"trace": b"t", "raw": b"\xff", "none": None, "via": b"x"})
    kafka_engine.add(None, key=b"\xff")
    kafka_engine.add(b"", headers={"ce_id": b"7", "ce_source": b"/shop", "content-type": b"text/plain"})
    first, second, third = await entries(kafka_engine)
    assert (first.key, first.value, first.fields) == (
        "k",
        b'{"n":1}',
        {"headers": '{"trace":"t","raw":"\\\\xff","none":""}'},
    )
    assert (second.key, second.value, second.fields) == ("\\xff", None, {})
    assert third.value == b""
    assert third.fields == {"ce_id": "7", "ce_source": "/shop", "headers": '{"content-type":"text/plain"}'}


async def test_aborted_transactions_are_not_read(kafka_engine: KafkaEngine, kafka_server: KafkaServer) -> None:
    kafka_engine.make()
    producer = kafka_server.producer(transactional_id=kafka_engine.topic)
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(kafka_engine.topic, str(number).encode())
        producer.flush(20)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(20)
    assert [arrival.value for arrival in await entries(kafka_engine)] == [b"0", b"2", b"4"]


@pytest.mark.parametrize(("begin", "first"), [("0", b"0"), ("2", b"2"), ("5", None), ("900", None)])
async def test_a_begin_is_the_first_offset_to_read(kafka_engine: KafkaEngine, begin: str, first: bytes | None) -> None:
    for number in range(5):
        kafka_engine.add(str(number).encode())
    origin = kafka_engine.origin()
    await origin.open("", "", is_exact=True)
    found = await origin.read(origin.check_place(begin), 0)
    await origin.aclose()
    assert (found[0].value if found else None) == first
    with pytest.raises(ValueError, match="write earliest, latest or an offset"):
        origin.check_place("x")


async def test_a_reader_notices_that_the_server_is_gone_and_comes_back(
    kafka_engine: KafkaEngine, kafka_server: KafkaServer
) -> None:
    kafka_engine.add(b"1")
    origin = kafka_engine.origin()
    source = await origin.open("", "", is_exact=True)
    (first,) = await origin.read("", 0)
    kafka_server.kill()
    try:
        with anyio.fail_after(60), pytest.raises(EngineUnreachable):
            while True:
                await origin.read(first.place, 1)
    finally:
        kafka_server.start()
    with anyio.fail_after(60):
        while True:
            with suppress(EngineUnreachable):
                assert not (await origin.open(first.place, source.centre, is_exact=True)).is_replaced
                break
            await anyio.sleep(0.1)
    kafka_engine.add(b"2")
    with anyio.fail_after(30):
        while not (found := await origin.read(first.place, 5)):
            pass
    assert [arrival.value for arrival in found] == [b"2"]
    await origin.aclose()


async def test_values_of_any_bytes_arrive(kafka_engine: KafkaEngine) -> None:
    values = [bytes(range(256)), b"", base64.b64encode(b"x" * 300_000)]
    for value in values:
        kafka_engine.add(value)
    assert [arrival.value for arrival in await entries(kafka_engine)] == values
