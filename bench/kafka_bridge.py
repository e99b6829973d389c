"""R3 and R4: a topic to Kafka and back, beside confluent-kafka alone.

All use one server with one partition. The values have the same size. The bridge also sends the attributes of a CloudEvent as
headers, and writes in transactions. The producer alone is idempotent (acks=all), and sends no headers.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker_process import broker_process
from bench.engines import bridge, fill, rate_of
from bench.kafka_server import KAFKA_VERSION, KafkaProcess, find_jars
from bench.programs import NotMeasured, folder, program
from bench.settings import BenchSettings
from tweetwire import SyncClient

__all__ = ["from_kafka", "to_kafka"]

_PAGE: Final = 1000
_FLUSH_S: Final = 600.0
_QUIET: Final = {"log_level": 0}


def to_kafka(settings: BenchSettings) -> tuple[float, float]:
    """R3: return the rates (/s) of one round: the bridge, and a producer alone."""
    with folder() as home, _kafka(home) as servers:
        with broker_process("--topic", "bench") as (broker, _):
            fill(broker, "bench", settings.events, settings.size)
            with bridge(home, broker, f"bench -> kafka://{servers}/bench?partitions=1"), _plain(servers) as plain:
                ours = rate_of(lambda: _end_of(plain, "bench"), settings.events)
        return ours, _produce(servers, "alone", settings)


def from_kafka(settings: BenchSettings) -> tuple[float, float]:
    """R4: return the rates (/s) of one round: the bridge to a durable topic, and a consume loop alone."""
    with folder() as home, _kafka(home) as servers:
        _produce(servers, "bench", settings)
        bare = _consume(servers, settings.events)
        with broker_process("--topic", "bench") as (broker, _):
            route = f"kafka://{servers}/bench -> bench"
            words = (
                "bridge",
                "--broker",
                f"127.0.0.1:{broker}",
                "--metrics-port",
                0,
                "--heartbeat",
                "0s",
                "--in",
                route,
            )
            with program(home / "bridge.log", *words), SyncClient(f"127.0.0.1:{broker}", name="bench") as client:
                ours = rate_of(lambda: int(client.stats("bench")["topics"]["bench"]["next"]), settings.events)
        return ours, bare


@contextmanager
def _kafka(home: Path) -> Iterator[str]:
    """Start a server with the topics `bench` and `alone`, and yield its address. Raises NotMeasured without it."""
    jars = find_jars(f"kafka-{KAFKA_VERSION}")
    if jars is None:
        raise NotMeasured("Kafka is missing; `make engines` fetches it (needs Maven and Java)")
    with KafkaProcess(home / "kafka", jars) as server:
        admin = AdminClient({"bootstrap.servers": server.servers, **_QUIET})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("bench", "alone")]).values():
            future.result(60)
        yield server.servers


@contextmanager
def _plain(servers: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False, **_QUIET})
    try:
        yield consumer
    finally:
        consumer.close()


def _end_of(consumer: Consumer, topic: str) -> int:
    """Return the end of a topic. The commits of transactions count too, one for many records."""
    return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1]


def _produce(servers: str, topic: str, settings: BenchSettings) -> float:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **_QUIET})
    value = b'"%b"' % (b"x" * max(1, settings.size - 112))
    began = time.perf_counter()
    for number in range(settings.events):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % _PAGE:
            producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise NotMeasured(f"the server did not take all messages within {_FLUSH_S:.0f} s")
    return settings.events / (time.perf_counter() - began)


def _consume(servers: str, events: int) -> float:
    with _plain(servers) as consumer:
        consumer.assign([TopicPartition("bench", 0, 0)])
        count = len(consumer.consume(1, 60))
        began, first = time.perf_counter(), count
        while count < events:
            messages = consumer.consume(_PAGE, 1)
            for message in messages:
                message.value()
            count += len(messages)
        return (count - first) / (time.perf_counter() - began)
