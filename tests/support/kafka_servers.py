"""Kafka as a real process, and its messages as a plain consumer reads them."""

from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.kafka_server import KAFKA_VERSION, KafkaProcess, find_jars
from tests.support.needed import needed_engine

__all__ = ["KafkaServer", "find_spark_kafka", "header", "read_messages"]

SPARK_KAFKA: Final = "4.2.0"
_QUIET: Final = {"log_level": 0}


def find_spark_kafka() -> str:
    """Return the folder with the jars of Spark's source for Kafka. Without it, the test is skipped or fails."""
    return str(_needed(f"spark-kafka-{SPARK_KAFKA}", "source of Spark for Kafka"))


def _needed(name: str, what: str) -> Path:
    """Return a folder of jars. Without it, the test is skipped, or fails where the engines are required."""
    return needed_engine(find_jars(name), f"there is no {what}; `make engines` installs it (needs Maven and Java 17)")


class KafkaServer(KafkaProcess):
    """One server, with plain clients for a test itself. `settings` are more of its settings, with ``_`` in place of a dot."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, _needed(f"kafka-{KAFKA_VERSION}", f"Kafka {KAFKA_VERSION}"), **settings)

    def admin(self) -> AdminClient:
        """Return a plain client for administration."""
        return AdminClient({"bootstrap.servers": self.servers, **_QUIET})

    def producer(self, **settings: Any) -> Producer:
        """Return a plain producer, for the messages of a test itself."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.servers, **_QUIET, **config})

    def url(self, topic: str) -> str:
        """Return the address of a topic for a route."""
        return f"kafka://{self.servers}/{topic}"


def header(message: Message, name: str) -> str:
    """Return a header of a message, which must be there."""
    found = dict(message.headers() or [])[name]
    return found.decode() if isinstance(found, bytes) else str(found)


def read_messages(servers: str, topic: str) -> list[Message]:
    """Return all committed messages of a topic, partition by partition, read by a plain consumer and nothing of the bridge.

    A transaction that was confirmed may be hidden for a moment, so this waits until no open transaction hides anything.
    """
    config = {"bootstrap.servers": servers, "group.id": "independent", "enable.auto.commit": False, **_QUIET}
    plain = Consumer({**config, "isolation.level": "read_uncommitted"})
    reader = Consumer(
        {
            **config,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = plain.list_topics(topic, timeout=20).topics[topic].partitions
        places = [TopicPartition(topic, one, 0) for one in sorted(partitions)]
        ends = [plain.get_watermark_offsets(place, timeout=20)[1] for place in places]
        return [
            message for place, end in zip(places, ends, strict=True) for message in _read_partition(reader, place, end)
        ]
    finally:
        plain.close()
        reader.close()


def _read_partition(reader: Consumer, place: TopicPartition, end: int) -> list[Message]:
    reader.assign([place])
    found: list[Message] = []
    while True:
        message = reader.poll(20)
        assert message is not None, f"no end of {place} after {len(found)} messages; is a transaction open?"
        if message.error() is None:
            found.append(message)
        elif (message.offset() or 0) >= end:
            return found
