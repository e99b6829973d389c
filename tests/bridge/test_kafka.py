"""The program on a real broker and a real Kafka: each opening, partitions, two bridges, and rejected events."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import NewPartitions

from bridge.engines.kafka_positions import POSITIONS
from tests.bridge.conftest import Start
from tests.bridge.engines.kafka_engine import KafkaEngine
from tests.bridge.programs import Bridge, publish, verified, wait_for_carried
from tests.support.kafka_servers import KafkaServer, header
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until
from tweetwire import Event, SyncClient

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]


@pytest.fixture
def engine(kafka_server: KafkaServer) -> Iterator[KafkaEngine]:
    """A topic that does not exist yet."""
    engine = KafkaEngine(kafka_server)
    yield engine
    engine.delete()


def events(count: int, first: int = 0) -> list[Event]:
    return [Event(id=f"e{number}", msg={"n": number}, key=f"k{number % 5}") for number in range(first, first + count)]


def out(engine: KafkaEngine, options: str = "") -> str:
    return f"orders -> {engine.server.url(engine.topic)}{options}"


def into(engine: KafkaEngine, options: str = "") -> str:
    return f"{engine.server.url(engine.topic)}{options} -> taken"


def offsets(engine: KafkaEngine) -> list[int]:
    return [int(header(message, "ce_offset")) for message in engine.messages()]


def wait_for_messages(engine: KafkaEngine, count: int) -> list[Message]:
    """Wait until the topic has `count` messages, and return all of them."""
    until(engine.exists, 60)
    until(lambda: len(engine.messages()) >= count, 60, lambda: len(engine.messages()), 0.1)
    return engine.messages()


def mark_of(broker: BrokerProcess) -> int:
    with SyncClient(broker.address, name="test") as client:
        marks = client.marks("orders")
        return marks[0].offset if marks else -1


def key_of(broker: BrokerProcess, engine: KafkaEngine) -> str:
    with SyncClient(broker.address, name="test") as client:
        return f"{client.broker_identity}/orders/{engine.topic}"


def test_a_topic_goes_out_and_comes_in_elsewhere_with_all_its_members(
    tmp_path: Path, broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    sent = [
        Event(id="a", msg={"π": [1, None]}, key="k", priority=9, parent="p", headers={"trace": "t"}),
        Event(id="a", msg="again"),
        Event(id="ü b", msg=None),
    ]
    publish(broker.address, "orders", sent)
    start("--out", out(engine))
    with (
        BrokerProcess(tmp_path / "second") as second,
        Bridge(tmp_path / "in.log", second.address, "--in", into(engine)) as inward,
    ):
        taken = wait_for_carried(second.address, "taken", 3)
        assert [(one.id, one.key, one.priority, one.parent) for one in taken] == [
            (one.id, one.key, one.priority, one.parent) for one in sent
        ]
        assert [one.decode() for one in taken] == [one.msg for one in sent]
        assert isinstance(taken[0].headers, dict)
        assert taken[0].headers["trace"] == "t"
        assert "3 compared" in verified(broker.address, out(engine))
        assert "3 compared" in verified(second.address, into(engine))
        assert inward.terminate() == 0


def test_partitions_keep_the_order_of_a_key_and_are_verified_together(
    tmp_path: Path, broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    publish(broker.address, "orders", events(3000))
    start("--out", out(engine, "?partitions=3&batch=100"))
    wait_for_messages(engine, 3000)
    with (
        BrokerProcess(tmp_path / "second") as second,
        Bridge(tmp_path / "in.log", second.address, "--in", into(engine)) as inward,
    ):
        taken = [one.decode()["n"] for one in wait_for_carried(second.address, "taken", 3000)]
        assert sorted(taken) == list(range(3000))
        for key in range(5):
            assert [number for number in taken if number % 5 == key] == list(range(key, 3000, 5))
        # A partition that is added later is read from its first message.
        change = NewPartitions(engine.topic, 4)
        engine.admin.create_partitions([change])[engine.topic].result(30)
        inward.kill()
        inward.start()
        until(lambda: engine.admin.list_topics(engine.topic, timeout=20).topics[engine.topic].partitions.get(3))
        engine.add(b"4000", partition=3)
        assert wait_for_carried(second.address, "taken", 3001)[-1].decode() == 4000
        assert "3000 compared" in verified(broker.address, out(engine))
        assert "3001 compared" in verified(second.address, into(engine))
        assert inward.terminate() == 0


def test_latest_is_a_place_that_a_restart_keeps(broker: BrokerProcess, engine: KafkaEngine, start: Start) -> None:
    engine.add(b"0")
    publish(broker.address, "orders", events(5))
    bridge = start("--in", into(engine, "?begin=latest"))
    producer = f"kafka.{engine.topic}.0.seen"
    with SyncClient(broker.address, name="test") as client:
        until(lambda: "taken" in {info.topic for info in client.topics()})
        until(lambda: client.last("taken", producer))
    bridge.kill()
    engine.add(b"1")
    bridge.start()
    assert [one.decode() for one in wait_for_carried(broker.address, "taken", 1)] == [1]


def test_it_waits_for_a_topic_that_is_missing_with_one_warning(
    broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    publish(broker.address, "orders", events(2))
    waiting = start("--out", out(engine, "?create=no"), "--in", into(engine))
    until(lambda: len(waiting.logged("nothing to carry yet, waiting")) == 2)
    time.sleep(1)
    assert len(waiting.logged("nothing to carry yet, waiting")) == 2
    engine.make()
    wait_for_messages(engine, 2)
    assert waiting.terminate() == 0


def test_a_deleted_topic_ends_the_program_with_one_sentence_until_the_user_chooses(
    broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(engine))
    wait_for_messages(engine, 5)
    until(lambda: mark_of(broker) == 5)
    engine.delete()
    publish(broker.address, "orders", events(1, 5))
    assert bridge.wait() == 2
    assert bridge.said("give on_lost=resend to send them again, or on_lost=skip to continue without them")
    skipping = start("--out", out(engine, "?on_lost=skip"))
    wait_for_messages(engine, 1)
    assert offsets(engine) == [5]
    assert skipping.logged("the central copy was lost")
    until(lambda: mark_of(broker) == 6)
    assert skipping.terminate() == 0
    engine.delete()
    publish(broker.address, "orders", events(1, 6))
    start("--out", out(engine, "?on_lost=resend"))
    wait_for_messages(engine, 2)
    assert offsets(engine) == [5, 6]


def test_events_that_kafka_has_lost_are_sent_again(broker: BrokerProcess, engine: KafkaEngine, start: Start) -> None:
    server = engine.server
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(engine))
    wait_for_messages(engine, 5)
    until(lambda: mark_of(broker) == 5)
    assert bridge.terminate() == 0
    server.kill()
    # The state of a replica that had half of the events, and becomes the leader.
    copy = server.data.with_name("copy")
    shutil.copytree(server.data, copy)
    server.start()
    bridge.start()
    publish(broker.address, "orders", events(5, 5))
    wait_for_messages(engine, 10)
    until(lambda: mark_of(broker) == 10)
    assert bridge.terminate() == 0
    server.kill()
    shutil.rmtree(server.data)
    copy.rename(server.data)
    server.start()
    assert len(engine.messages()) == 5
    bridge.start()
    wait_for_messages(engine, 10)
    assert offsets(engine) == list(range(10))
    (warning,) = bridge.logged("the engine lost events, sending them again")
    assert (warning["first"], warning["last"]) == (5, 9)
    verified(broker.address, out(engine))


def test_events_that_retention_removed_unsent_are_a_gap_record(
    broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(engine))
    wait_for_messages(engine, 5)
    assert bridge.terminate() == 0
    publish(broker.address, "orders", events(10, 5))
    with SyncClient(broker.address, name="test") as client:
        client.purge("orders", 12)
    failing = start("--out", out(engine, "?on_gap=fail"))
    assert failing.wait() == 2
    assert failing.said("retention removed the events 5 to 11 before they were sent")
    start("--out", out(engine))
    found = wait_for_messages(engine, 9)
    assert [header(one, "ce_type") for one in found] == [
        *["tweetwire.event"] * 5,
        "tweetwire.gap",
        *["tweetwire.event"] * 3,
    ]
    gap = json.loads(found[5].value() or b"")["gap"]
    assert (gap["first"], gap["last"], header(found[5], "ce_offset")) == (5, 11, "11")
    assert "7 in reported gaps" in verified(broker.address, out(engine))


def test_a_position_that_the_topic_never_had_is_refused_until_a_new_identity(
    broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(engine))
    wait_for_messages(engine, 5)
    until(lambda: mark_of(broker) == 5)
    assert bridge.terminate() == 0
    position = json.dumps({"offset": 99, "centre": f"kafka.{engine.topic_id()}"}).encode()
    foreign = engine.server.producer()
    foreign.produce(POSITIONS, position, key_of(broker, engine), 0)
    assert foreign.flush(20) == 0
    refused = start("--out", out(engine))
    assert refused.wait() == 2
    assert refused.said("the engine has our event 99, and the topic ends before 5")
    renamed = start("--out", out(engine), "--new-identity")
    found = wait_for_messages(engine, 10)
    assert len({header(one, "ce_source") for one in found}) == 2
    assert offsets(engine) == [0, 1, 2, 3, 4] * 2
    assert renamed.terminate() == 0


def test_messages_that_kafka_removed_are_not_missing(broker: BrokerProcess, engine: KafkaEngine, start: Start) -> None:
    publish(broker.address, "orders", events(10))
    start("--out", out(engine, "?batch=5"))
    wait_for_messages(engine, 10)
    engine.remove_first(4)
    assert ": 6 compared, 0 missing" in verified(broker.address, out(engine))


def test_two_bridges_on_one_route_carry_each_event_once(
    broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    central = KafkaEngine(engine.server)
    central.make(2)
    for _ in range(2):
        start("--out", out(engine, "?batch=50&partitions=2"))
        start("--in", into(central, "?batch=50"))
    producer = engine.server.producer()
    for first in range(0, 3000, 100):
        publish(broker.address, "orders", events(100, first))
        for number in range(first, first + 100):
            producer.produce(central.topic, str(number).encode(), partition=number % 2)
        assert producer.flush(20) == 0
    wait_for_messages(engine, 3000)
    assert sorted(offsets(engine)) == list(range(3000))
    found = [one.decode() for one in wait_for_carried(broker.address, "taken", 3000)]
    assert sorted(found) == list(range(3000))
    assert [number for number in found if number % 2] == list(range(1, 3000, 2))
    verified(broker.address, out(engine), into(central))
    central.delete()


def test_an_event_that_the_broker_refuses_forever_is_kept_and_passed(
    broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    with SyncClient(broker.address, name="test") as client:
        client.create("taken")
        client.command('schema taken {"type":"integer"}')
    for value in (b"1", b'"no"', b"2", b"[]", b'{"x":1e999}', b"3"):
        engine.add(value)
    bridge = start("--in", into(engine))
    assert [one.decode() for one in wait_for_carried(broker.address, "taken", 3)] == [1, 2, 3]
    rejected = [one.decode() for one in events_of(broker.address, "rejected_bridged")]
    assert [one["reason"].split()[0] for one in rejected] == ["schema", "schema", "bad_event"]
    assert bridge.terminate() == 0
    verified(broker.address, into(engine))


def test_an_event_that_kafka_refuses_forever_is_kept_and_excepted(
    broker: BrokerProcess, engine: KafkaEngine, start: Start
) -> None:
    engine.make(max_message_bytes="20000")
    large = Event(id="large", msg="x" * 30_000)
    publish(broker.address, "orders", [*events(3), large, *events(3, 4)])
    start("--out", out(engine))
    wait_for_messages(engine, 6)
    assert offsets(engine) == [0, 1, 2, 4, 5, 6]
    (rejected,) = events_of(broker.address, "rejected_bridged")
    assert (rejected.id, rejected.decode()["place"]) == ("large", "3")
    until(lambda: mark_of(broker) == 7)
    assert "6 compared" in verified(broker.address, out(engine))
