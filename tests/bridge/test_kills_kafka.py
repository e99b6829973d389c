"""When bridge, Kafka and broker are killed under load, both directions still carry each event once and in order."""

import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from tests.bridge.programs import Bridge, verified
from tests.bridge.test_kills import Writers, kill_some
from tests.support.kafka_servers import KafkaServer, header, read_messages
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until

KILLS: Final = int(os.environ.get("TWEETWIRE_TEST_BRIDGE_KILLS", "3"))
PARTITIONS: Final = 2
SEED: Final = 5
"""With three kills, each of the processes is killed once."""


class KafkaWriters(Writers):
    """Publishes to the broker, and to the topic `central` of Kafka with nothing of the bridge.

    The message with the number n is in partition n % PARTITIONS.
    """

    def __init__(self, broker: BrokerProcess, server: KafkaServer) -> None:
        super().__init__(broker, server)  # type: ignore[arg-type]
        self._kafka = server
        self._is_unsure = False

    def _add(self) -> None:
        while self._is_unsure or not self._is_stopped.is_set():
            with suppress(KafkaException):
                self._add_until_lost()
            time.sleep(0.05)

    def _add_until_lost(self) -> None:
        producer = self._kafka.producer(transactional_id="writer", transaction_timeout_ms=10_000)
        producer.init_transactions(10)
        if self._is_unsure:
            # The transaction before was committed as a whole or not at all.
            self.added = len(read_messages(self._kafka.servers, "central"))
            self._is_unsure = False
        while not self._is_stopped.is_set():
            self._is_unsure = True
            producer.begin_transaction()
            for number in range(self.added, self.added + 5):
                producer.produce("central", str(number).encode(), partition=number % PARTITIONS)
            producer.commit_transaction(10)
            self.added += 5
            self._is_unsure = False
            time.sleep(0.01)


@pytest.mark.stack
@pytest.mark.timeout(300 + KILLS * 30)
def test_every_event_is_carried_once_through_kills(tmp_path: Path, broker: BrokerProcess) -> None:
    with KafkaServer(tmp_path / "kafka") as server:
        admin = server.admin()
        admin.create_topics([NewTopic("central", PARTITIONS, 1)])["central"].result(30)
        outward = f"orders -> {server.url('orders')}?batch=100&partitions={PARTITIONS}"
        inward = f"{server.url('central')}?batch=100 -> taken"
        flags = ("--out", outward, "--in", inward, "--engine-timeout", "5s")
        writers = KafkaWriters(broker, server)
        with Bridge(tmp_path / "bridge.log", broker.address, *flags) as bridge:
            with writers.running():
                kill_some([bridge, server, broker], KILLS, random.Random(KILLS + SEED))
                until(lambda: min(writers.published, writers.added) > 100, 120, bridge.log)
            until(lambda: len(events_of(broker.address, "taken")) >= writers.added, 120, bridge.log, 0.5)
            until(lambda: f"{writers.published} compared" in verified(broker.address, outward), 120, bridge.log, 0.5)
            assert f"{writers.added} compared" in verified(broker.address, inward)
            check_orders(server, writers.published)
            taken = [event.decode() for event in events_of(broker.address, "taken")]
            for partition in range(PARTITIONS):
                found = [number for number in taken if number % PARTITIONS == partition]
                assert found == list(range(partition, writers.added, PARTITIONS))
            assert bridge.terminate() == 0


def check_orders(server: KafkaServer, published: int) -> None:
    """Check that a plain consumer sees each event once, and in order within its partition."""
    messages = read_messages(server.servers, "orders")
    assert sorted(int(header(one, "ce_offset")) for one in messages) == list(range(published))
    assert all(header(one, "ce_id") == f"e{header(one, 'ce_offset')}" for one in messages)
    for partition in range(PARTITIONS):
        found = [int(header(one, "ce_offset")) for one in messages if one.partition() == partition]
        assert found == sorted(found)
