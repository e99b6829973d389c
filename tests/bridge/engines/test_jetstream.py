"""Streams of JetStream beyond the contract: subjects, conditions, sizes, streams of other people, and removed messages."""

import json
import secrets
from typing import Any

import pytest

from bridge.central import (
    CentralLost,
    EngineUnreachable,
    EntriesRemoved,
    NotThereYet,
    PositionMoved,
    Record,
    RecordRefused,
)
from bridge.engines.jetstream import JetStreamDestination
from bridge.engines.jetstream_link import NatsLogin
from bridge.engines.jetstream_origin import JetStreamOrigin
from tests.bridge.engines.jetstream_engine import JetStreamEngine
from tests.bridge.records import record
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.anyio

A, B = "A" * 22, "B" * 22


def destination(engine: JetStreamEngine, **options: Any) -> JetStreamDestination:
    return JetStreamDestination(engine.login, engine.stream, "orders", **options)


async def appended(engine: JetStreamEngine, *numbers: int, broker: str = A, **options: Any) -> None:
    """Append records at their offsets."""
    one = destination(engine, **options)
    try:
        await one.open(broker)
        await one.append([record(number) for number in numbers])
    finally:
        await one.aclose()


def offsets(engine: JetStreamEngine) -> list[int]:
    return [int(message.headers["ce-offset"]) for message in engine.messages()]


async def test_a_message_has_its_key_in_the_subject_and_its_attributes_in_headers(
    jetstream_engine: JetStreamEngine,
) -> None:
    one = destination(jetstream_engine)
    await one.open(A)
    fields = ["ce_id", " π%\r\nx ", "ce_offset", "0", "headers", '{"a":" b "}']
    await one.append([Record(0, 5, "user.7 *", b"1", fields), Record(1, 5, None, b"2", fields)])
    await one.aclose()
    first, second = jetstream_engine.messages()
    assert (first.subject, second.subject) == (f"tw.{A}.orders.user%2E7%20%2A", f"tw.{A}.orders._")
    assert first.headers["ce-id"] == "%20%CF%80%25%0D%0Ax%20"
    assert first.headers["headers"] == '{"a":" b "}'
    assert first.headers["Tweetwire-Position"] == f"{A}/orders/0"
    origin = jetstream_engine.origin()
    await origin.open("", "", is_exact=True)
    (arrival, _) = await origin.read("", 0)
    assert arrival.fields == dict(zip(fields[::2], fields[1::2], strict=True))
    await origin.aclose()


async def test_a_batch_of_more_than_a_thousand_records_is_several_batches(jetstream_engine: JetStreamEngine) -> None:
    await appended(jetstream_engine, *range(2501))
    assert offsets(jetstream_engine) == list(range(2501))


async def test_a_stream_of_one_broker_alone_needs_no_condition_on_the_subject(
    jetstream_engine: JetStreamEngine,
) -> None:
    jetstream_engine.make(f"tw.{A}.orders.>")
    await appended(jetstream_engine, 0, 1, 2)
    await appended(jetstream_engine, 3)
    found = jetstream_engine.messages()
    assert offsets(jetstream_engine) == [0, 1, 2, 3]
    assert [message.headers.get("Nats-Expected-Last-Sequence") for message in found] == ["0", None, None, "3"]
    assert all("Nats-Expected-Last-Subject-Sequence" not in message.headers for message in found)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("is_alone", [True, False])
async def test_two_bridges_that_write_at_the_same_time_write_each_record_once(
    jetstream_engine: JetStreamEngine, count: int, is_alone: bool
) -> None:
    if is_alone:
        jetstream_engine.make(f"tw.{A}.orders.>")
    first, second = destination(jetstream_engine), destination(jetstream_engine)
    await first.open(A)
    await second.open(A)
    done = 0
    refusals = 0
    while done < 60 * count:
        for one in (first, second):
            try:
                await one.append([record(done + number) for number in range(count)])
                done += count
            except PositionMoved:
                refusals += 1
                found = await one.open(A)
                assert found.position == done - 1
    assert refusals >= 30
    assert offsets(jetstream_engine) == list(range(done))
    await first.aclose()
    await second.aclose()


async def test_brokers_and_topics_with_dots_share_a_stream_without_meeting(jetstream_engine: JetStreamEngine) -> None:
    routes = [(A, "orders"), (A, "orders.late"), (B, "orders")]
    for number, (broker, topic) in enumerate(routes):
        one = JetStreamDestination(jetstream_engine.login, jetstream_engine.stream, topic)
        await one.open(broker)
        await one.append([record(number)])
        await one.aclose()
    for number, (broker, topic) in enumerate(routes):
        one = JetStreamDestination(jetstream_engine.login, jetstream_engine.stream, topic)
        assert (await one.open(broker)).position == number
        await one.aclose()


async def test_a_stream_of_another_person_is_never_changed(jetstream_engine: JetStreamEngine) -> None:
    jetstream_engine.make("other.>")
    with pytest.raises(StartError, match=r"takes no messages with the subject tw\.A+\.orders\.>; add it"):
        await appended(jetstream_engine, 0)
    with pytest.raises(StartError, match=r"has fewer than 3 replicas; give it more with `nats stream edit"):
        await appended(jetstream_engine, 0, subject="other.{key}", replicas=3)
    jetstream_engine.delete()
    jetstream_engine.make("tw.>", allow_atomic=False)
    with pytest.raises(StartError, match="takes no atomic batches; allow them"):
        await appended(jetstream_engine, 0)


async def test_a_stream_of_ours_takes_the_subjects_of_the_next_route_too(jetstream_engine: JetStreamEngine) -> None:
    await appended(jetstream_engine, 0)
    await appended(jetstream_engine, 0, subject="more.{broker}.{key}")
    info = jetstream_engine.run(lambda context: context.stream_info(jetstream_engine.stream))
    assert info.config.subjects == ["tw.*.orders.>", "more.*.>"]


async def test_subjects_of_another_stream_and_replicas_without_a_cluster_are_reported_in_one_sentence(
    jetstream_engine: JetStreamEngine,
) -> None:
    with pytest.raises(
        StartError, match="cannot have more than one replica, because the server is not part of a cluster"
    ):
        await appended(jetstream_engine, 0, replicas=3)
    await appended(jetstream_engine, 0)
    other = JetStreamDestination(jetstream_engine.login, "OTHER", "orders")
    with pytest.raises(StartError, match="OTHER would take subjects of another stream; give the route other ones"):
        await other.open(A)
    await other.aclose()


async def test_a_message_of_another_program_under_our_subject_is_reported_in_one_sentence(
    jetstream_engine: JetStreamEngine,
) -> None:
    jetstream_engine.add(b"1", f"tw.{A}.orders.x")
    with pytest.raises(
        StartError, match=r"message 1 of the stream ORDERS, which no bridge has written, has a subject of"
    ):
        await appended(jetstream_engine, 0)


async def test_two_brokers_with_the_same_subjects_are_reported_in_one_sentence(
    jetstream_engine: JetStreamEngine,
) -> None:
    await appended(jetstream_engine, 0, subject="orders.{key}")
    with pytest.raises(StartError, match=rf"which the route {A}/orders has written, has a subject of {B}/orders"):
        await appended(jetstream_engine, 0, broker=B, subject="orders.{key}")


async def test_a_record_that_is_too_large_is_refused_before_anything_is_written(
    jetstream_engine: JetStreamEngine,
) -> None:
    one = destination(jetstream_engine)
    await one.open(A)
    with pytest.raises(RecordRefused, match="the server takes 1048576 bytes") as refused:
        await one.append([*map(record, range(1500)), record(1500, b"x" * (1 << 20)), record(1501)])
    assert refused.value.offset == 1500
    assert (await one.open(A)).position is None
    large = Record(3, 1, None, b"1", ["ce_id", "x" * 70_000])
    with pytest.raises(RecordRefused, match="65535 of them headers"):
        await one.append([large])
    await one.append([record(0)])
    await one.aclose()


async def test_the_largest_message_of_a_stream_is_respected(jetstream_engine: JetStreamEngine) -> None:
    jetstream_engine.make("tw.>", max_msg_size=1000)
    one = destination(jetstream_engine)
    await one.open(A)
    with pytest.raises(RecordRefused, match="the server takes 1000 bytes"):
        await one.append([record(0), record(1, b"x" * 1000)])
    await one.append([record(0), record(1)])
    await one.aclose()


async def test_a_full_stream_is_a_refusal_for_now_that_writes_nothing(jetstream_engine: JetStreamEngine) -> None:
    jetstream_engine.make("tw.>", max_msgs=3, discard="new")
    one = destination(jetstream_engine)
    await one.open(A)
    await one.append([record(0), record(1)])
    for records in ([record(2), record(3)], [record(2), record(3), record(4)]):
        with pytest.raises(EngineUnreachable, match="maximum messages exceeded"):
            await one.append(records)
    assert (await one.open(A)).position == 1
    await one.append([record(2)])
    assert offsets(jetstream_engine) == [0, 1, 2]
    await one.aclose()


async def test_a_route_continues_when_the_stream_has_removed_all_its_messages(
    jetstream_engine: JetStreamEngine,
) -> None:
    one = destination(jetstream_engine)
    await one.open(A)
    await one.append([record(0), record(1)])
    jetstream_engine.add(b"1")
    jetstream_engine.remove_first(2)
    await one.append([record(2), record(3)])
    found = await one.open(A)
    assert (found.position, found.has_expired) == (3, False)
    jetstream_engine.remove_first(3)
    found = await one.open(A)
    assert (found.position, found.has_expired) == (None, True)
    await one.append([record(4)])
    assert (await one.open(A)).position == 4
    await one.aclose()


async def test_a_stream_that_was_made_again_is_noticed(jetstream_engine: JetStreamEngine) -> None:
    one = destination(jetstream_engine)
    before = await one.open(A)
    await one.append([record(0), record(1)])
    jetstream_engine.delete()
    jetstream_engine.make("tw.>")
    with pytest.raises((PositionMoved, CentralLost)):
        await one.append([record(2)])
    found = await one.open(A)
    assert found.position is None
    assert found.centre != before.centre
    await one.aclose()


async def test_a_forgotten_position_stays_forgotten_and_is_not_an_entry(jetstream_engine: JetStreamEngine) -> None:
    one = destination(jetstream_engine)
    await one.open(A)
    await one.append([record(7)])
    await one.forget()
    assert (await one.open(A)).position is None
    await one.forget()
    await one.append([record(3)])
    assert (await one.open(A)).position == 3
    assert [arrival.fields["ce_offset"] async for page in one.entries() for arrival in page] == ["7", "3"]
    origin = jetstream_engine.origin()
    await origin.open("", "", is_exact=True)
    first = await origin.read("", 0)
    assert [arrival.fields["ce_offset"] for arrival in first] == ["7", "3"]
    assert [arrival.place for arrival in await origin.read(first[0].place, 0)] == ["3"]
    await origin.aclose()
    await one.aclose()


async def test_messages_of_another_program_keep_headers_and_subject(jetstream_engine: JetStreamEngine) -> None:
    jetstream_engine.add(b'{"t":1}', "tw.sensor.berlin.x", unit="°C")
    jetstream_engine.add(b"", "tw.sensor.berlin.x")
    origin = jetstream_engine.origin()
    await origin.open("", "", is_exact=True)
    first, second = await origin.read("", 0)
    assert (first.key, first.value, json.loads(first.fields["headers"])) == (
        "tw.sensor.berlin.x",
        b'{"t":1}',
        {"unit": "°C"},
    )
    assert (second.value, second.fields) == (None, {})
    await origin.aclose()


async def test_a_deleted_message_after_the_first_one_is_not_a_gap(jetstream_engine: JetStreamEngine) -> None:
    await appended(jetstream_engine, *range(6))
    jetstream_engine.run(lambda context: context.delete_msg(jetstream_engine.stream, 4))
    origin = jetstream_engine.origin()
    await origin.open("2", "", is_exact=True)
    assert [one.place for one in await origin.read("2", 0)] == ["3", "5", "6"]
    await origin.aclose()


async def test_messages_that_are_removed_while_they_are_read_are_reported(jetstream_engine: JetStreamEngine) -> None:
    await appended(jetstream_engine, *range(10))
    origin = JetStreamOrigin(jetstream_engine.login, jetstream_engine.stream, batch=3)
    await origin.open("", "", is_exact=True)
    assert [one.place for one in await origin.read("", 0)] == ["1", "2", "3"]
    jetstream_engine.remove_first(5)
    with pytest.raises(EntriesRemoved, match="between 3 and 6"):
        await origin.read("3", 0)
    assert [one.place for one in await origin.read("3", 0)] == ["6", "7", "8"]
    assert [one.place for one in await origin.read("8", 0)] == ["9", "10"]
    await origin.aclose()


async def test_a_stream_whose_messages_belong_to_its_consumers_is_reported_in_one_sentence(
    jetstream_engine: JetStreamEngine,
) -> None:
    jetstream_engine.make("tw.>", retention="workqueue")
    origin = jetstream_engine.origin()
    with pytest.raises(StartError, match="has the retention workqueue, and a reader of it would take messages from"):
        await origin.open("", "", is_exact=True)
    await origin.aclose()


async def test_a_name_that_no_stream_can_have_is_reported_in_one_sentence(jetstream_engine: JetStreamEngine) -> None:
    one = JetStreamDestination(jetstream_engine.login, "a.b", "orders")
    with pytest.raises(StartError, match=r"'a\.b' cannot name a stream of JetStream"):
        await one.open(A)
    await one.aclose()


async def test_a_missing_server_and_a_wrong_password_can_be_tried_again(jetstream_engine: JetStreamEngine) -> None:
    nowhere = JetStreamDestination(NatsLogin((("127.0.0.1", 1),)), "ORDERS", "orders")
    with pytest.raises(EngineUnreachable):
        await nowhere.open(A)
    hosts = (("127.0.0.1", 1), *jetstream_engine.login.hosts)
    login = NatsLogin(hosts, user="me", password=secrets.token_hex())
    assert str(login.password) not in repr(login)
    one = JetStreamDestination(login, "ORDERS", "orders", create=False)
    with pytest.raises(NotThereYet):
        await one.open(A)
    await one.aclose()


async def test_a_server_without_tls_never_gets_the_password(jetstream_engine: JetStreamEngine) -> None:
    login = NatsLogin(jetstream_engine.login.hosts, user="me", password=secrets.token_hex(), is_tls=True)
    one = JetStreamDestination(login, "ORDERS", "orders")
    with pytest.raises(EngineUnreachable, match="the server has no TLS"):
        await one.open(A)
    await one.aclose()
