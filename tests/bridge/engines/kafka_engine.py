"""A topic of a real Kafka, as the tests of the engines use it."""

import itertools
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bridge.central import Destination, Origin, Registry
from bridge.engines.kafka import KafkaDestination
from bridge.engines.kafka_link import KafkaLogin
from bridge.engines.kafka_origin import KafkaOrigin
from bridge.engines.kafka_registry import BROKERS, KafkaRegistry
from tests.support.kafka_servers import KafkaServer, read_messages
from tests.support.waiting import until

__all__ = ["KafkaEngine"]

_numbers: Final = itertools.count()


class KafkaEngine:
    """A topic that does not exist yet. Each test has a topic of another name, since positions outlive topics."""

    def __init__(self, server: KafkaServer, topic: str = "", timeout_s: float = 20) -> None:
        self.server = server
        self.login = KafkaLogin(server.hosts, timeout_s=timeout_s)
        self.topic = topic or f"orders{next(_numbers)}"
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        self._admin = self._admin or self.server.admin()
        return self._admin

    def destination(self, topic: str = "orders", **options: Any) -> Destination:
        return KafkaDestination(self.login, self.topic, topic, **options)

    def origin(self, partition: int = 0) -> Origin:
        return KafkaOrigin(self.login, self.topic, partition)

    def registry(self, **options: Any) -> Registry:
        return KafkaRegistry(self.login, **options)

    def make(self, partitions: int = 1, **config: str) -> None:
        """Make the topic as a person would."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(self.topic, partitions, 1, config=settings)])[self.topic].result(30)
        until(self.exists, 20)

    def exists(self, topic: str = "") -> bool:
        return (topic or self.topic) in self.admin.list_topics(timeout=20).topics

    def clear(self) -> None:
        """Delete everything that a test may have made, except positions."""
        self.delete()
        self.delete(BROKERS)

    def topic_id(self) -> str:
        """Return the id of the topic, as Kafka's own programs write it."""
        found = self.admin.describe_topics(TopicCollection([self.topic]))[self.topic].result(30)
        return str(found.topic_id).replace("+", "-").replace("/", "_")

    def delete(self, topic: str = "") -> None:
        topic = topic or self.topic
        try:
            self.admin.delete_topics([topic])[topic].result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        until(lambda: not self.exists(topic), 20)

    def add(self, value: bytes | None, **message: Any) -> None:
        """Add a message as another program would."""
        if not self.exists():
            self.make()
        producer = self.server.producer()
        producer.produce(self.topic, value, **message)
        assert producer.flush(20) == 0

    def remove_first(self, count: int) -> None:
        before = self.messages()[count].offset()
        assert before is not None
        place = TopicPartition(self.topic, 0, before)
        self.admin.delete_records([place])[place].result(30)

    def messages(self) -> list[Message]:
        """Return all messages, read by the library's own consumer."""
        return read_messages(self.server.servers, self.topic)
